// Any text is either refused, or a schema whose texts can be walked: masks and steps agree, and no
// text runs into a dead end. JSON that is read is written and read again as the same.
#include <array>

#include "grammar/json/json_string_decoder.h"
#include "grammar/schema/json_value.h"
#include "tests/fuzz/walk_grammar.h"

namespace {

using specdec::fuzz::GrammarInput;

void write_and_read(const std::string& text) {
  try {
    const std::string written = to_json(specdec::parse_json(text, "fuzz"));
    specdec::fuzz::require(to_json(specdec::parse_json(written, "written")) == written);
  } catch (const specdec::GrammarError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const GrammarInput input({reinterpret_cast<const char*>(data), size});
  write_and_read(input.text);
  constexpr std::array kWhitespace = {"compact", "spaced", "any", "indent:2"};
  const uint8_t style = input.choices.empty() ? 0 : input.choice(input.choices.size() - 1);
  specdec::GrammarSource source;
  source.schema.schema_order = style % 2 == 0;
  source.schema.whitespace = kWhitespace[style / 2 % 4];
  source.schema.escapes =
      style / 8 % 2 == 0 ? specdec::EscapeStyle::kAny : specdec::EscapeStyle::kMinimal;
  specdec::fuzz::walk(source, input);
  return 0;
}
