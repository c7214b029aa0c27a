#include "grammar/regex/terminal_mark.h"

namespace specdec {
namespace {

constexpr char32_t kTerminalMark = CodePoints::kLast;

RegexId mark(RegexStore& store) {
  return store.one_of(CodePoints({{kTerminalMark, kTerminalMark}}));
}

}  // namespace

CodePoints without_mark(const CodePoints& points) {
  return points.intersect(CodePoints({{0, kTerminalMark - 1}}));
}

RegexId maybe_mark(RegexStore& store) { return store.any_of(RegexStore::kEmpty, mark(store)); }

RegexId marked(RegexStore& store, RegexId terminal) {
  const RegexId unmarked =
      store.repeat(store.one_of(without_mark(CodePoints::all())), 0, std::nullopt);
  return store.concat(store.all_of(terminal, unmarked),
                      store.concat(mark(store), RegexStore::kAll));
}

}  // namespace specdec
