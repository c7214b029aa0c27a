#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/tags/tag_program.h"

namespace specdec {

/// Builds from the end to the beginning: each part is told what follows it.
class TagProgramBuilder {
 public:
  explicit TagProgramBuilder(const TagCompiler& compiler) : compiler_(compiler) {}

  TagProgram build(const TagFormat& format) &&;

 private:
  using Kind = TagFormat::Kind;

  struct Text {
    TagSymbols symbols;
    TagEntry then;
  };
  /// An entry while it is built; `also`: other entries of which it has everything.
  struct Entry {
    std::vector<Text> texts = {};
    std::vector<uint32_t> grammars = {}, free = {};
    std::vector<TagEntry> also = {};
    bool end = false;
    uint32_t ended = TagProgram::kNone;
  };
  /// An end token of the vocabulary that a format names: the text of `entry` begins with it.
  struct EndToken {
    const TagFormat* format;
    TagEntry entry;
  };
  struct FreePart {
    const TagFormat* format;
    TagEntry then;
  };

  TagEntry add(Entry entry);
  TagEntry either(TagEntry a, TagEntry b) { return add({.also = {a, b}}); }

  TagEntry entry_of(const TagFormat& format, TagEntry then);
  TagEntry spelled(const TagFormat& format, TagEntry then, bool join);
  TagEntry text(TagSymbols symbols, TagEntry then, bool join = true);
  TagEntry delimiter(const TagFormat& format, TagEntry then, uint32_t ended);
  TagEntry grammar(const TagFormat& format, TagEntry then);
  TagEntry free(const TagFormat& format, TagEntry then);
  TagEntry any_of(const std::vector<TagFormat>& parts, TagEntry then);
  TagEntry tag(const TagFormat& format, TagEntry then);
  TagEntry triggered(const TagFormat& format, TagEntry then);
  TagEntry separated(const TagFormat& format, TagEntry then);
  TagEntry members(const TagFormat& format, TagEntry then);
  TagEntry repeat(const TagFormat& format, TagEntry then);
  TagEntry copies(const TagFormat& format, uint64_t min, TagEntry then);
  void check_repeat(const TagFormat& format, bool is_empty);
  bool may_be_empty(const TagFormat& format);
  TagSymbols symbols(const TagFormat& format) const;
  size_t automaton(const TagContent& content);

  void find_starts();
  TagProgram::Start start_of(TagEntry entry);
  void find_free();
  void find_distances();
  void find_tokens();
  void check_end_tokens() const;

  const TagCompiler& compiler_;
  TagProgram program_;
  std::vector<Entry> entries_;
  std::vector<FreePart> free_parts_;
  std::vector<EndToken> end_tokens_;
  std::map<std::string, size_t> automata_;  ///< by content
  std::vector<uint32_t> visited_;           ///< by entry: the last walk that came there
  uint32_t walk_ = 0;
  uint64_t repeats_ = 0, empty_repeats_ = 0;
  size_t start_texts_ = 0;
};

}  // namespace specdec
