#include "grammar/grammar_source.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/gbnf.h"
#include "grammar/cfg/lark.h"
#include "grammar/regex/regex_parser.h"
#include "grammar/tags/trigger_automaton.h"

namespace specdec {
namespace {

std::unique_ptr<Automaton> make_automaton(SharedLanguages& languages, const GrammarSource& source);

RegexId one_of_choices(RegexStore& regexes, const GrammarSource& source) {
  std::vector<std::u32string> words;
  for (const std::string& choice : source.choices) {
    words.push_back(to_code_points(choice));
  }
  return regexes.words(std::move(words));
}

std::unique_ptr<Automaton> make_triggers(SharedLanguages& languages, const GrammarSource& source) {
  if (source.triggers.empty()) {
    throw GrammarError("there is no trigger; give at least one, with the tag that begins it");
  }
  std::vector<TriggerRule> rules;
  for (const GrammarSource::Trigger& trigger : source.triggers) {
    rules.push_back({trigger.begin, make_automaton(languages, trigger.grammar), trigger.end});
  }
  return make_trigger_automaton(std::move(rules));
}

std::unique_ptr<Automaton> make_of_kind(SharedLanguages& languages, const GrammarSource& source,
                                        const std::string& name) {
  RegexStore& regexes = languages.regexes;
  const auto start = [&](std::string_view usual) {
    return source.start.empty() ? usual : std::string_view(source.start);
  };
  switch (source.kind) {
    case GrammarKind::kJsonSchema:
      return make_json_schema_automaton(languages, parse_json(source.text, name), source.schema,
                                        source.limits);
    case GrammarKind::kRegex:
      return make_regex_automaton(regexes, parse_regex(regexes, source.text, false));
    case GrammarKind::kGbnf:
      return make_gbnf_automaton(regexes, source.text, name, source.limits, start("root"));
    case GrammarKind::kLark:
      return make_lark_automaton(regexes, source.text, name, source.limits, start("start"));
    case GrammarKind::kChoice:
      return make_regex_automaton(regexes, one_of_choices(regexes, source));
    case GrammarKind::kTrigger:
      return make_triggers(languages, source);
  }
  throw InternalError("a grammar of no kind");
}

std::string why_empty(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return kNothingSatisfies;
    case GrammarKind::kChoice:
      return "there is no choice; give at least one text";
    default:
      return "no text matches; remove what contradicts itself";
  }
}

/// An automaton with a start; every error begins with the name.
std::unique_ptr<Automaton> make_automaton(SharedLanguages& languages, const GrammarSource& source) {
  const std::string name = source.name.empty() ? grammar_kind_name(source.kind) : source.name;
  try {
    auto automaton = make_of_kind(languages, source, name);
    if (automaton->start() == Automaton::kDead) {
      throw GrammarError(why_empty(source.kind));
    }
    return automaton;
  } catch (const GrammarError& error) {
    if (std::string_view(error.what()).starts_with(name + ":")) {
      throw;
    }
    throw GrammarError(fmt::format("{}: {}", name, error.what()));
  }
}

}  // namespace

const std::vector<std::string>& grammar_kind_names() {
  static const std::vector<std::string> names = {"json_schema", "regex",  "gbnf",
                                                 "lark",        "choice", "trigger"};
  return names;
}

const std::string& grammar_kind_name(GrammarKind kind) {
  return grammar_kind_names()[static_cast<size_t>(kind)];
}

std::optional<GrammarKind> parse_grammar_kind(std::string_view name) {
  const auto& names = grammar_kind_names();
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt
                              : std::optional(static_cast<GrammarKind>(found - names.begin()));
}

std::shared_ptr<const CompiledGrammar> compile_grammar(
    std::shared_ptr<GrammarVocabulary> vocabulary, const GrammarSource& source) {
  std::shared_ptr<GrammarLanguages> languages;
  std::unique_ptr<Automaton> automaton;
  {
    const std::lock_guard lock(vocabulary->mutex());
    languages = vocabulary->begin_grammar();
    languages->shared.regexes.allow(source.limits.max_regex_states);
    automaton = make_automaton(languages->shared, source);
  }
  auto grammar = std::make_shared<CompiledGrammar>(vocabulary, std::move(automaton),
                                                   source.limits.max_mask_bytes, source.cuts,
                                                   std::move(languages));
  grammar->remember([vocabulary, source] { return compile_grammar(vocabulary, source); });
  return grammar;
}

void check_grammar(const GrammarSource& source) {
  SharedLanguages languages;
  languages.regexes.allow(source.limits.max_regex_states);
  (void)make_automaton(languages, source);
}

}  // namespace specdec
