#include "grammar/tags/tag_threads.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "grammar/interruption.h"

namespace specdec {

uint32_t pack_character(const Utf8Decoder& utf8) {
  return utf8.value << 8 | utf8.more << 4 | utf8.size;
}

Utf8Decoder unpack_character(uint32_t word) { return {word >> 8, word >> 4 & 0xF, word & 0xF}; }

void TagThreads::add(const TagThread& thread) { threads_.push_back(thread); }

void TagThreads::add_entry(TagEntry entry) {
  const TagProgram::Start& start = program_.start(entry);
  if (start.end) {
    add({.kind = TagThread::kEnd});
  }
  if (!start.texts.empty()) {
    add({.kind = TagThread::kText, .id = entry});
  }
  for (const uint32_t free : start.free) {
    add({.kind = TagThread::kFree, .id = free});
  }
  for (const uint32_t grammar : start.grammars) {
    add_grammar(grammar, program_.automaton(grammar).start());
  }
}

void TagThreads::add_grammar(uint32_t id, StateId state) {
  const TagThread thread = {.kind = TagThread::kGrammar, .id = id, .at = state};
  const TagProgram::Grammar& grammar = program_.grammar(id);
  const auto [known, is_new] = earliest_.try_emplace({grammar.family, state}, id);
  if (!is_new && known->second >= id) {
    return;  // what follows it has been added: grammars of empty texts may follow each other
  }
  Interruption::check();
  known->second = id;
  add(thread);
  if (!program_.automaton(id).is_complete(state)) {
    return;
  }
  if (!grammar.greedy) {
    add_entry(grammar.then);
    return;
  }
  const TagProgram::Start& then = program_.start(grammar.then);
  if (then.end ||
      std::ranges::any_of(then.free, [&](uint32_t free) { return program_.free(free).may_end; })) {
    add({.kind = TagThread::kEnd});
  }
}

void TagThreads::step(const std::vector<TagThread>& threads, uint32_t symbol) {
  ended_.clear();
  for (const TagThread& thread : threads) {  // sorted by kind: what ends grammars comes first
    switch (thread.kind) {
      case TagThread::kText:
        step_text(thread, symbol);
        break;
      case TagThread::kFree:
        step_free(thread, symbol);
        break;
      case TagThread::kGrammar:
        step_grammar(thread, symbol);
        break;
      default:
        break;
    }
  }
}

void TagThreads::step_text(const TagThread& thread, uint32_t symbol) {
  const TagTexts& texts = program_.start(thread.id).texts;
  const TagTexts::Node node = texts.child(thread.at, symbol);
  if (node == GrowingTrie::kNone) {
    return;
  }
  const uint32_t grammar = program_.ended_grammar(thread.id);
  const bool ends = !texts.ends(node).empty() && grammar != TagProgram::kNone;
  if (ends) {
    ended_.push_back(grammar);
    std::erase_if(threads_, [&](const TagThread& other) {
      return other.kind == TagThread::kText && other.id == thread.id && other.at != 0;
    });
  } else if (texts.has_children(node) && std::ranges::find(ended_, grammar) == ended_.end()) {
    add({.kind = TagThread::kText, .id = thread.id, .at = node});
  }
  for (const TagEntry then : texts.ends(node)) {
    add_entry(then);
  }
}

void TagThreads::step_free(const TagThread& thread, uint32_t symbol) {
  const TagSearch& search = program_.free(thread.id).search;
  Utf8Decoder utf8 = unpack_character(thread.more);
  std::optional<char32_t> point;
  const bool fits = is_token(symbol) ? utf8.idle() : utf8.take(static_cast<uint8_t>(symbol), point);
  const TagSearch::Node node =
      search.is_committed(thread.at) || fits ? search.next(thread.at, symbol) : TagSearch::kNone;
  if (node == TagSearch::kNone) {
    return;
  }
  const std::vector<TagEntry>& ends = search.ends(node);
  const bool goes_on = search.is_committed(node) ? search.texts().has_children(node) : ends.empty();
  if (goes_on && search.is_committed(node)) {
    add({.kind = TagThread::kFree, .id = thread.id, .at = node});
  } else if (goes_on && can_finish_character(thread.id, node, utf8)) {
    add({.kind = TagThread::kFree,
         .id = thread.id,
         .at = node,
         .more = pack_character(utf8.shape())});
  }
  for (const TagEntry then : ends) {
    add_entry(then);
  }
}

/// Excluded texts may leave a character that has begun without an end.
bool TagThreads::can_finish_character(uint32_t free, TagSearch::Node node,
                                      const Utf8Decoder& utf8) const {
  const TagSearch& search = program_.free(free).search;
  if (utf8.idle() || !search.excludes_characters()) {
    return true;
  }
  for (uint32_t byte = 0x80; byte < 0xC0; ++byte) {
    Utf8Decoder longer = utf8;
    std::optional<char32_t> point;
    if (longer.take(static_cast<uint8_t>(byte), point)) {
      const TagSearch::Node there = search.next(node, byte);
      if (there != TagSearch::kNone &&
          (!search.ends(there).empty() || can_finish_character(free, there, longer))) {
        return true;
      }
    }
  }
  return false;
}

void TagThreads::step_grammar(const TagThread& thread, uint32_t symbol) {
  if (std::ranges::find(ended_, thread.id) != ended_.end()) {
    return;
  }
  Automaton& automaton = program_.automaton(thread.id);
  const StateId after = is_token(symbol) ? automaton.next_token(thread.at, token_of(symbol))
                                         : automaton.next(thread.at, static_cast<uint8_t>(symbol));
  const TagProgram::Grammar& grammar = program_.grammar(thread.id);
  if (after != Automaton::kDead) {
    add_grammar(thread.id, after);
  } else if (grammar.greedy && automaton.is_complete(thread.at)) {
    for (const uint32_t free : program_.start(grammar.then).free) {
      step_free({.kind = TagThread::kFree, .id = free}, symbol);
    }
  }
}

std::vector<TagThread> TagThreads::take() {
  std::erase_if(threads_, [&](const TagThread& thread) {
    return thread.kind == TagThread::kGrammar &&
           earliest_.at({program_.grammar(thread.id).family, thread.at}) != thread.id;
  });
  earliest_.clear();
  std::sort(threads_.begin(), threads_.end());
  threads_.erase(std::unique(threads_.begin(), threads_.end()), threads_.end());
  return std::exchange(threads_, {});
}

}  // namespace specdec
