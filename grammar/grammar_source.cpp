#include "grammar/grammar_source.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/gbnf.h"
#include "grammar/cfg/lark.h"
#include "grammar/regex/regex_parser.h"
#include "grammar/tags/plain_string_automaton.h"
#include "grammar/tags/tag_automaton.h"
#include "grammar/tags/tool_calls.h"
#include "grammar/tags/trigger_automaton.h"

namespace specdec {
namespace {

/// What grammars are compiled with. Without a vocabulary every name is one of a token.
struct Compiling {
  SharedLanguages& languages;
  const GrammarVocabulary* vocabulary = nullptr;
};

std::unique_ptr<Automaton> make_automaton(const Compiling& with, const GrammarSource& source);

RegexId one_of_choices(RegexStore& regexes, const GrammarSource& source) {
  std::vector<std::u32string> words;
  for (const std::string& choice : source.choices) {
    words.push_back(to_code_points(choice));
  }
  return regexes.words(std::move(words));
}

std::unique_ptr<Automaton> make_triggers(const Compiling& with, const GrammarSource& source) {
  if (source.triggers.empty()) {
    throw GrammarError("there is no trigger; give at least one, with the tag that begins it");
  }
  std::vector<TriggerRule> rules;
  for (const GrammarSource::Trigger& trigger : source.triggers) {
    rules.push_back({trigger.begin, make_automaton(with, trigger.grammar), trigger.end});
  }
  return make_trigger_automaton(std::move(rules));
}

/// Options of schemas with other white space, so that documents they may refer to are copied once.
using OptionsByWhitespace = std::map<std::string, JsonSchemaOptions>;

const JsonSchemaOptions& options_of(const JsonSchemaOptions& whole, const std::string& whitespace,
                                    OptionsByWhitespace& others) {
  if (whitespace.empty()) {
    return whole;
  }
  const auto [options, is_new] = others.try_emplace(whitespace, whole);
  if (is_new) {
    check_whitespace(whitespace);
    options->second.whitespace = whitespace;
  }
  return options->second;
}

/// A part of a structured text; what it does not say is as in the whole.
std::unique_ptr<Automaton> make_content(const Compiling& with, const GrammarSource& whole,
                                        const TagContent& content, OptionsByWhitespace& options) {
  const bool is_plain = content.type == "plain_string";
  if (is_plain || content.type == "json_schema") {
    auto automaton = make_json_schema_automaton(
        with.languages, content.schema, options_of(whole.schema, content.whitespace, options),
        whole.limits);
    if (automaton->start() == Automaton::kDead) {
      throw GrammarError(kNothingSatisfies);
    }
    return is_plain ? make_plain_string_automaton(std::move(automaton)) : std::move(automaton);
  }
  GrammarSource part;
  part.kind = parse_grammar_kind(content.type).value();
  part.text = content.text;
  part.start = content.start;
  part.choices = content.choices;
  part.limits = whole.limits;
  return make_automaton(with, part);
}

std::unique_ptr<Automaton> make_tags(const Compiling& with, const GrammarSource& source,
                                     const TagFormat& format) {
  std::vector<std::string> names;  // of tokens, when there is no vocabulary
  TagCompiler compiler;
  OptionsByWhitespace options;
  compiler.compile = [&](const TagContent& content) {
    return make_content(with, source, content, options);
  };
  compiler.require_token = [&](const std::string& name) -> Token {
    if (with.vocabulary != nullptr) {
      return with.vocabulary->require_token(name);
    }
    names.push_back(name);
    return static_cast<Token>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  compiler.find_token = [&](const std::string& name) -> std::optional<Token> {
    return with.vocabulary == nullptr ? std::nullopt : with.vocabulary->find_token(name);
  };
  compiler.is_end = [&](Token token) {
    return with.vocabulary != nullptr && std::ranges::find(with.vocabulary->end_tokens(), token) !=
                                             with.vocabulary->end_tokens().end();
  };
  return make_tag_automaton(make_tag_program(format, compiler));
}

std::unique_ptr<Automaton> make_tool_calls(const Compiling& with, const GrammarSource& source,
                                           const JsonValue& request) {
  OptionsByWhitespace options;
  return make_tags(with, source, parse_tool_calls(request, [&](const JsonValue& schema) {
                     (void)make_content(with, source, {.type = "json_schema", .schema = schema},
                                        options);
                   }));
}

std::unique_ptr<Automaton> make_of_kind(const Compiling& with, const GrammarSource& source,
                                        const std::string& name) {
  RegexStore& regexes = with.languages.regexes;
  const auto start = [&](std::string_view usual) {
    return source.start.empty() ? usual : std::string_view(source.start);
  };
  switch (source.kind) {
    case GrammarKind::kJsonSchema:
      return make_json_schema_automaton(with.languages, parse_json(source.text, name),
                                        source.schema, source.limits);
    case GrammarKind::kRegex:
      return make_regex_automaton(
          regexes, parse_regex(regexes, source.text, false, RegexDialect::kEcmaStrict));
    case GrammarKind::kGbnf:
      return make_gbnf_automaton(regexes, source.text, name, source.limits, start("root"));
    case GrammarKind::kLark:
      return make_lark_automaton(regexes, source.text, name, source.limits, start("start"));
    case GrammarKind::kChoice:
      return make_regex_automaton(regexes, one_of_choices(regexes, source));
    case GrammarKind::kTrigger:
      return make_triggers(with, source);
    case GrammarKind::kTags:
      return make_tags(with, source, parse_tag_format(parse_json(source.text, name)));
    case GrammarKind::kToolCalls:
      return make_tool_calls(with, source, parse_json(source.text, name));
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
std::unique_ptr<Automaton> make_automaton(const Compiling& with, const GrammarSource& source) {
  const std::string name = source.name.empty() ? grammar_kind_name(source.kind) : source.name;
  try {
    auto automaton = make_of_kind(with, source, name);
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
  static const std::vector<std::string> names = {"json_schema", "regex",   "gbnf", "lark",
                                                 "choice",      "trigger", "tags", "tool_calls"};
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
    const std::shared_ptr<GrammarVocabulary>& vocabulary, const GrammarSource& source) {
  const auto make = [names = vocabulary.get(), source](SharedLanguages& languages) {
    return make_automaton({languages, names}, source);
  };
  return compile_automaton(vocabulary, source.limits, source.cuts, make);
}

void check_grammar(const GrammarSource& source) {
  SharedLanguages languages;
  languages.regexes.allow(source.limits.max_regex_states);
  (void)make_automaton({languages}, source);
}

}  // namespace specdec
