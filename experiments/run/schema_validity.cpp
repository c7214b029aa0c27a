#include "experiments/run/schema_validity.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/automaton.h"
#include "grammar/json/json_schema.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

JsonSchemaOptions any_spelling() {
  JsonSchemaOptions options;
  options.schema_order = false;
  options.whitespace = "any";
  options.usual_max_whitespace = kRecordedWhitespace;
  options.escapes = EscapeStyle::kAny;
  return options;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool is_text_of(Automaton& automaton, std::string_view text) {
  automaton.begin_call();
  StateId state = automaton.start();
  for (const char c : text) {
    state = automaton.next(state, static_cast<uint8_t>(c));
    if (state == Automaton::kDead) {
      return false;
    }
  }
  return state != Automaton::kDead && automaton.is_complete(state);
}

}  // namespace

struct SchemaValidity::Entry {
  SharedLanguages languages;
  std::unique_ptr<Automaton> automaton = nullptr;  ///< nullptr: the schema is not supported
};

SchemaValidity::SchemaValidity() = default;
SchemaValidity::~SchemaValidity() = default;

std::optional<bool> SchemaValidity::satisfies(const std::string& schema, std::string_view text) {
  constexpr double kUsedUp = 0.5;
  auto& entry = entries_[schema];
  try {
    if (entry == nullptr || (entry->automaton != nullptr && entry->automaton->used() > kUsedUp)) {
      const GrammarLimits limits;
      entry = std::make_unique<Entry>();
      entry->languages.regexes.allow(limits.max_regex_states);
      entry->automaton = make_json_schema_automaton(entry->languages, parse_json(schema, "schema"),
                                                    any_spelling(), limits);
    }
    return entry->automaton == nullptr
               ? std::nullopt
               : std::optional(is_text_of(*entry->automaton, trimmed(text)));
  } catch (const GrammarError&) {
    return std::nullopt;
  }
}

void SchemaValidity::check(const Prompt& prompt, const Tokenizer* tokenizer,
                           GenerationRecord& record) {
  if (prompt.schema.empty() || tokenizer == nullptr) {
    return;
  }
  TokenSpan answer = record.generation.tokens;
  const StopReason reason = record.generation.stop_reason;
  if (!answer.empty() && (reason == StopReason::kEndOfSequence || reason == StopReason::kStopId)) {
    answer = answer.first(answer.size() - 1);
  }
  if (record.thinking) {
    answer = answer.subspan(std::min(answer.size(), static_cast<size_t>(record.thinking->end)));
  }
  record.is_valid = satisfies(prompt.schema, decode_text(tokenizer, answer));
}

}  // namespace specdec
