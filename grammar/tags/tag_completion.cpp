#include "grammar/tags/tag_completion.h"

#include <algorithm>
#include <utility>

namespace specdec {
namespace {

/// The text below a node after which the end is nearest.
struct NearestText {
  TagTexts::Node node = GrowingTrie::kRoot;
  uint32_t distance = TagProgram::kNone;
};

NearestText nearest_below(const TagProgram& program, const TagTexts& texts, TagTexts::Node from) {
  NearestText best;
  std::vector<TagTexts::Node> open = {from};
  while (!open.empty()) {
    const TagTexts::Node node = open.back();
    open.pop_back();
    for (const TagEntry then : node == from ? std::vector<TagEntry>() : texts.ends(node)) {
      if (program.distance(then) < best.distance) {
        best = {node, program.distance(then)};
      }
    }
    const GrowingTrie& trie = texts.trie();
    for (auto child = trie.newest_child(node); child != GrowingTrie::kNone;
         child = trie.next_child(child)) {
      open.push_back(child);
    }
  }
  return best;
}

uint32_t distance_of(const TagProgram& program, const TagThread& thread) {
  switch (thread.kind) {
    case TagThread::kEnd:
      return 0;
    case TagThread::kText:
      return nearest_below(program, program.start(thread.id).texts, thread.at).distance + 1;
    case TagThread::kFree: {
      const TagProgram::Free& free = program.free(thread.id);
      const bool committed = free.search.is_committed(thread.at);
      return free.may_end && !committed
                 ? 0
                 : nearest_below(program, free.search.texts(), committed ? thread.at : 0).distance +
                       1;
    }
    default:
      return program.distance(program.grammar(thread.id).then) + 1;
  }
}

/// The way between two nodes, up to the first token, or that token.
TagCompletion way_along(const TagTexts& texts, TagTexts::Node from, TagTexts::Node to) {
  TagCompletion way;
  const TagSymbols symbols = texts.symbols(to);
  for (size_t i = texts.trie().length(from); i < symbols.size(); ++i) {
    if (is_token(symbols[i])) {
      way.token = way.bytes.empty() ? std::optional(token_of(symbols[i])) : std::nullopt;
      break;
    }
    way.bytes += static_cast<char>(symbols[i]);
  }
  return way;
}

/// Bytes that finish the character that has begun.
std::string rest_of_character(const TagSearch& search, TagSearch::Node node, Utf8Decoder utf8) {
  for (uint32_t byte = 0x80; byte < 0xC0; ++byte) {
    Utf8Decoder longer = utf8;
    std::optional<char32_t> point;
    const TagSearch::Node there = search.next(node, byte);
    if (there == TagSearch::kNone || !longer.take(static_cast<uint8_t>(byte), point)) {
      continue;
    }
    if (longer.idle() || !search.ends(there).empty()) {
      return {static_cast<char>(byte)};
    }
    const std::string rest = rest_of_character(search, there, longer);
    if (!rest.empty()) {
      return static_cast<char>(byte) + rest;
    }
  }
  return "";
}

TagCompletion completion_of_free(const TagProgram& program, const TagThread& thread) {
  const TagSearch& search = program.free(thread.id).search;
  const Utf8Decoder utf8 = unpack_character(thread.more);
  if (!utf8.idle() && !search.is_committed(thread.at)) {
    return {rest_of_character(search, thread.at, utf8), std::nullopt};
  }
  const TagTexts::Node from = search.is_committed(thread.at) ? thread.at : GrowingTrie::kRoot;
  return way_along(search.texts(), from, nearest_below(program, search.texts(), from).node);
}

TagCompletion completion_of_grammar(const TagProgram& program, const TagThread& thread) {
  Automaton& automaton = program.automaton(thread.id);
  const TagProgram::Grammar& grammar = program.grammar(thread.id);
  if (grammar.greedy && automaton.is_complete(thread.at)) {
    const uint32_t free = program.start(grammar.then).free.front();
    return completion_of_free(program, {.kind = TagThread::kFree, .id = free});
  }
  TagCompletion way = {automaton.completion(thread.at).value_or(""),
                       automaton.completion_token(thread.at)};
  StateId after = thread.at;
  for (const char byte : way.bytes) {
    after = automaton.next(after, static_cast<uint8_t>(byte));
  }
  const TagProgram::Start& then = program.start(grammar.then);
  if (!way.bytes.empty() && !then.texts.empty() && automaton.is_complete(after)) {
    const TagTexts::Node nearest = nearest_below(program, then.texts, GrowingTrie::kRoot).node;
    way.bytes += way_along(then.texts, GrowingTrie::kRoot, nearest).bytes;
  }
  return way;
}

}  // namespace

bool may_end(const TagProgram& program, const TagThread& free) {
  const TagProgram::Free& text = program.free(free.id);
  return text.may_end && unpack_character(free.more).idle() && !text.search.is_committed(free.at);
}

TagCompletion find_completion(const TagProgram& program, const std::vector<TagThread>& threads) {
  const TagThread* best = nullptr;
  uint32_t nearest = TagProgram::kNone;
  TagCompletion of_grammar;  // of the best thread, where that is a grammar's
  for (const TagThread& thread : threads) {
    if (thread.kind == TagThread::kFree && may_end(program, thread)) {
      return {};
    }
    const uint32_t distance = distance_of(program, thread);
    if (distance < nearest) {
      if (thread.kind == TagThread::kGrammar) {
        TagCompletion way = completion_of_grammar(program, thread);
        if (way.bytes.empty() && !way.token) {
          continue;  // the grammar knows none
        }
        of_grammar = std::move(way);
      }
      best = &thread;
      nearest = distance;
    }
  }
  if (best == nullptr || best->kind == TagThread::kEnd) {
    return {};
  }
  if (best->kind == TagThread::kText) {
    const TagTexts& texts = program.start(best->id).texts;
    return way_along(texts, best->at, nearest_below(program, texts, best->at).node);
  }
  return best->kind == TagThread::kFree ? completion_of_free(program, *best) : of_grammar;
}

}  // namespace specdec
