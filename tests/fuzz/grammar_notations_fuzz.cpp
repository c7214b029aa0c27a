// Any text, after a byte that says in which notation (even: GBNF, odd: Lark), is either refused, or
// a grammar whose texts can be walked: masks and steps agree, no text runs into a dead end, and
// each has its completion.
#include "tests/fuzz/walk_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  specdec::GrammarSource source;
  source.kind = data[0] % 2 == 0 ? specdec::GrammarKind::kGbnf : specdec::GrammarKind::kLark;
  const specdec::fuzz::GrammarInput input({reinterpret_cast<const char*>(data) + 1, size - 1});
  specdec::fuzz::walk(source, input);
  return 0;
}
