#include "grammar/regex/regex_languages.h"

namespace specdec {
namespace {

RegexId any_character(RegexStore& store) { return store.one_of(CodePoints::all()); }

RegexId some_characters(RegexStore& store) {
  return store.repeat(any_character(store), 1, std::nullopt);
}

/// (M, N) with MN = `regex` and all texts of M of one length; M is nothing where there are none.
std::pair<RegexId, RegexId> split_mark(RegexStore& store, RegexId regex) {
  const RegexId longer = store.concat(regex, some_characters(store));
  const RegexId mark = store.all_of(regex, store.complement(longer));
  const auto sample = store.shortest(mark);
  if (!sample ||
      !is_within(store, mark, store.repeat(any_character(store), sample->size(), sample->size()))) {
    return {RegexStore::kNothing, RegexStore::kNothing};
  }
  RegexId behind = regex;
  for (const char32_t c : *sample) {
    behind = store.next(behind, c);
  }
  const RegexId whole = store.concat(mark, behind);
  const bool fits = are_equal(store, whole, regex);
  return {fits ? mark : RegexStore::kNothing, behind};
}

/// `rounds`, in none of which `rest` begins, and `rest`.
std::optional<RegexId> lazy_rounds(RegexStore& store, RegexId round, RegexId rounds, RegexId rest) {
  const RegexId found = store.concat(rest, RegexStore::kAll);
  if (store.is_nothing(store.all_of(store.concat(round, RegexStore::kAll), found))) {
    return store.concat(rounds, rest);  // the two are told apart by how they begin
  }
  const auto [mark, behind] = split_mark(store, rest);
  if (mark == RegexStore::kNothing || !is_within(store, round, any_character(store))) {
    return std::nullopt;
  }
  const RegexId earlier =
      store.concat(store.concat(RegexStore::kAll, mark), some_characters(store));
  const RegexId up_to_mark = store.all_of(store.concat(rounds, mark), store.complement(earlier));
  return store.concat(up_to_mark, behind);
}

}  // namespace

bool is_within(RegexStore& store, RegexId inner, RegexId outer) {
  return inner == outer || store.is_nothing(store.all_of(inner, store.complement(outer)));
}

bool are_equal(RegexStore& store, RegexId one, RegexId other) {
  return is_within(store, one, other) && is_within(store, other, one);
}

void split_blocks(std::vector<CodePoints>& blocks, const CodePoints& by) {
  std::vector<CodePoints> parts;
  for (const CodePoints& block : blocks) {
    for (const CodePoints& part : {block.intersect(by), block.intersect(by.complement())}) {
      if (!part.empty()) {
        parts.push_back(part);
      }
    }
  }
  blocks = std::move(parts);
}

RegexId tempered(RegexStore& store, RegexId points, RegexId found, bool negative) {
  RegexId begins = store.concat(found, RegexStore::kAll);
  begins = negative ? begins : store.complement(begins);
  begins = store.all_of(begins, some_characters(store));
  return store.all_of(points, store.complement(store.concat(RegexStore::kAll, begins)));
}

std::optional<RegexId> lazy_repeat(RegexStore& store, RegexId round,
                                   std::pair<uint64_t, std::optional<uint64_t>> counts,
                                   RegexId rest) {
  const auto [min, max] = counts;
  const RegexId first = store.repeat(round, min, min);
  if (store.matches_empty(rest)) {
    return store.concat(first, rest);
  }
  const auto more = max ? std::optional(*max - min) : std::nullopt;
  std::optional<RegexId> all;
  if (more == 1) {
    const RegexId found = store.concat(rest, RegexStore::kAll);
    const RegexId one = store.all_of(store.concat(round, rest), store.complement(found));
    all = store.any_of(rest, one);
  } else {
    all = lazy_rounds(store, round, store.repeat(round, 0, more), rest);
  }
  return all ? std::optional(store.concat(first, *all)) : std::nullopt;
}

}  // namespace specdec
