#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "grammar/regex/utf8_decoder.h"
#include "grammar/tags/tag_program.h"

namespace specdec {

/// A place in a structured text, of which there may be several at once.
struct TagThread {
  enum Kind : uint32_t {
    kEnd,      ///< the text may end
    kText,     ///< `id`: an entry, of whose texts `at` is a node
    kFree,     ///< `id`: free text, `at`: a node of its search, `more`: a character that has begun
    kGrammar,  ///< `id`: a grammar, `at`: a state of its automaton
  };
  uint32_t kind = kEnd, id = 0, at = 0, more = 0;
  auto operator<=>(const TagThread&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The threads of one state, as they are put together.
class TagThreads {
 public:
  explicit TagThreads(const TagProgram& program) : program_(program) {}

  /// Everything that an entry may begin with.
  void add_entry(TagEntry entry);
  /// A grammar at a state, and what may follow it there.
  void add_grammar(uint32_t id, StateId state);
  /// The threads after one more byte or token.
  void step(const std::vector<TagThread>& threads, uint32_t symbol);
  /// Sorted, each once.
  std::vector<TagThread> take();

 private:
  void add(const TagThread& thread);
  void step_text(const TagThread& thread, uint32_t symbol);
  void step_free(const TagThread& thread, uint32_t symbol);
  void step_grammar(const TagThread& thread, uint32_t symbol);
  bool can_finish_character(uint32_t free, TagSearch::Node node, const Utf8Decoder& utf8) const;

  const TagProgram& program_;
  /// Earliest copy of each family of grammars and state, which may do all that later ones may.
  std::map<std::pair<uint32_t, StateId>, uint32_t> earliest_;
  std::vector<TagThread> threads_;
  std::vector<uint32_t> ended_;  ///< grammars whose end was found in this step
};

uint32_t pack_character(const Utf8Decoder& utf8);
Utf8Decoder unpack_character(uint32_t word);

}  // namespace specdec
