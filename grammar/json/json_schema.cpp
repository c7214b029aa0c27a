// A JSON Schema as a grammar: the document, its formulas, their plans and the automaton, owned by
// one.
#include "grammar/json/json_schema.h"

#include <charconv>

#include "core/error.h"
#include "grammar/json/json_automaton.h"
#include "grammar/schema/schema_document.h"

namespace specdec {
namespace {

WhitespaceStyle whitespace_style(const std::string& name, uint32_t max_whitespace = 0) {
  using Kind = WhitespaceStyle::Kind;
  if (name == "compact") {
    return {Kind::kCompact, 0};
  }
  if (name == "spaced") {
    return {Kind::kSpaced, 0};
  }
  if (name == "any") {
    constexpr uint32_t kBlanks = 16;  // four levels of four spaces
    return {Kind::kAny, max_whitespace == 0 ? kBlanks : max_whitespace, max_whitespace == 0};
  }
  uint32_t spaces = 0;
  const std::string digits = name.starts_with("indent:") ? name.substr(7) : "";
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), spaces);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() ||
      spaces > 16) {
    throw GrammarError(fmt::format(
        "white space '{}' is not known; known: compact, spaced, any, indent:N (0 to 16 spaces)",
        name));
  }
  return {Kind::kIndent, spaces};
}

uint32_t max_whitespace(const JsonSchemaOptions& options) {
  return options.max_whitespace == 0 ? options.usual_max_whitespace : options.max_whitespace;
}

class JsonSchemaAutomaton final : public Automaton {
 public:
  JsonSchemaAutomaton(SharedLanguages& languages, JsonValue schema,
                      const JsonSchemaOptions& options, const GrammarLimits& limits)
      : formulas_(languages.regexes),
        document_(std::move(schema), options.registry),
        schemas_(document_, formulas_, {.assert_formats = options.assert_formats}),
        plans_(formulas_, schemas_,
               {.schema_order = options.schema_order && !options.any_order_of_names,
                .max_alternatives = limits.max_alternatives,
                .max_steps = limits.max_steps,
                .max_seconds = limits.max_seconds}),
        json_(formulas_, plans_, languages.numbers, schemas_.root(),
              {.whitespace = whitespace_style(options.whitespace, max_whitespace(options)),
               .escapes = {options.escapes, languages.unspelled},
               .numbers = options.schema_order ? NumberStyle::kPlain : NumberStyle::kAny,
               .max_states = limits.max_states}) {
    plans_.prepare_all(schemas_.root());
  }

  StateId start() override { return json_.start(); }
  void begin_call() override { plans_.begin_call(); }
  StateId next(StateId state, uint8_t byte) override { return json_.next(state, byte); }
  bool is_complete(StateId state) override { return json_.is_complete(state); }
  std::string explain(StateId state) override { return json_.explain(state); }
  double used() const override { return json_.used(); }
  std::optional<std::string> completion(StateId state) override { return json_.completion(state); }
  Bytes candidates(StateId state) override { return json_.candidates(state); }
  StringStates* string_states() override { return json_.string_states(); }

 private:
  FormulaStore formulas_;
  SchemaDocument document_;
  SchemaFormulas schemas_;
  JsonPlans plans_;
  JsonAutomaton json_;
};

}  // namespace

const char* const kNothingSatisfies =
    "no JSON value satisfies this schema: its keywords contradict each other (for example a "
    "required property that is false, or minimum above maximum)";

void check_whitespace(const std::string& name) { (void)whitespace_style(name); }

void check_whitespace(const JsonSchemaOptions& options) {
  if (options.max_whitespace > 0 && options.whitespace != "any") {
    throw GrammarError(
        fmt::format("max_whitespace is {}, but whitespace is {}; it bounds the white space of "
                    "whitespace: any only. Set that, or leave max_whitespace out.",
                    options.max_whitespace, options.whitespace));
  }
}

std::unique_ptr<Automaton> make_json_schema_automaton(SharedLanguages& languages, JsonValue schema,
                                                      const JsonSchemaOptions& options,
                                                      const GrammarLimits& limits) {
  return std::make_unique<JsonSchemaAutomaton>(languages, std::move(schema), options, limits);
}

}  // namespace specdec
