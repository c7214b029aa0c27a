#include "grammar/grammar_source.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/gbnf.h"
#include "grammar/cfg/lark.h"
#include "grammar/regex/regex_parser.h"
#include "grammar/tags/gemma_values_automaton.h"
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
  std::vector<std::string>* names = nullptr;  ///< of tokens that were asked for
  bool is_part = false;                       ///< of a structured text
  /// Becomes true when a schema may have any white space, for the source whose options it has.
  bool* has_any_whitespace = nullptr;

  Token require_token(const std::string& name) const {
    const auto known = std::find(names->begin(), names->end(), name);
    const auto index = static_cast<Token>(known - names->begin());
    if (known == names->end()) {
      names->push_back(name);
    }
    return vocabulary == nullptr ? index : vocabulary->require_token(name);
  }
  bool is_end(Token token) const {
    return vocabulary != nullptr &&
           std::ranges::find(vocabulary->end_tokens(), token) != vocabulary->end_tokens().end();
  }
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
    Compiling part = with;
    part.is_part = true;
    part.has_any_whitespace = nullptr;  // it has options of its own
    rules.push_back({trigger.begin, make_automaton(part, trigger.grammar), trigger.end});
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

std::unique_ptr<Automaton> make_schema(const Compiling& with, JsonValue schema,
                                       const JsonSchemaOptions& options,
                                       const GrammarLimits& limits) {
  *with.has_any_whitespace = *with.has_any_whitespace || options.whitespace == "any";
  return make_json_schema_automaton(with.languages, std::move(schema), options, limits);
}

/// Values in Gemma 4's notation. Names come in any order: the chat template sorts all of an object.
std::unique_ptr<Automaton> make_gemma_values(const Compiling& with, const GrammarSource& whole,
                                             const JsonValue& schema, OptionsByWhitespace& others) {
  const auto [options, is_new] = others.try_emplace("gemma_values", whole.schema);
  options->second.whitespace = "compact";
  options->second.any_order_of_names = true;
  bool is_unused = false;
  Compiling part = with;
  part.has_any_whitespace = &is_unused;
  auto automaton = make_schema(part, schema, options->second, whole.limits);
  if (automaton->start() == Automaton::kDead) {
    throw GrammarError(kNothingSatisfies);
  }
  return make_gemma_values_automaton(
      std::move(automaton),
      with.vocabulary == nullptr ? std::nullopt : with.vocabulary->find_token(kGemmaQuote));
}

/// A part of a structured text; what it does not say is as in the whole.
std::unique_ptr<Automaton> make_content(const Compiling& with, const GrammarSource& whole,
                                        const TagContent& content, OptionsByWhitespace& options) {
  if (content.type == "gemma_values") {
    return make_gemma_values(with, whole, content.schema, options);
  }
  const bool is_plain = content.type == "plain_string";
  if (is_plain || content.type == "json_schema") {
    Compiling part = with;
    bool is_unused = false;
    part.has_any_whitespace = is_plain ? &is_unused : with.has_any_whitespace;
    auto automaton = make_schema(
        part, content.schema, options_of(whole.schema, content.whitespace, options), whole.limits);
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
  part.schema = whole.schema;
  Compiling of_part = with;
  of_part.is_part = true;
  return make_automaton(of_part, part);
}

/// What llguidance reads as options, and this would not read at all.
void refuse_guidance(const JsonValue& schema) {
  if (schema.find("x-guidance") != nullptr) {
    throw GrammarError(
        "the key 'x-guidance' is not read; set order, whitespace and escapes beside the grammar's "
        "text, and leave it out here");
  }
}

RuleParts parts_of_rules(const Compiling& with, const GrammarSource& source) {
  RuleParts parts;
  parts.limits = source.limits;
  parts.start = source.start;
  parts.is_part = with.is_part;
  parts.require_token = [with](const std::string& name) {
    const Token token = with.require_token(name);
    if (with.is_part && with.is_end(token)) {
      throw GrammarError(
          fmt::format("the token {} ends what is generated, and this grammar is a part of a text; "
                      "name the token behind it, as a tag's end",
                      name));
    }
    return token;
  };
  parts.is_end = [with](Token token) { return with.is_end(token); };
  parts.compile_schema = [with, &source](const std::string& text, const std::string& where) {
    JsonValue schema = parse_json(text, where);
    refuse_guidance(schema);
    auto automaton = make_schema(with, std::move(schema), source.schema, source.limits);
    if (automaton->start() == Automaton::kDead) {
      throw GrammarError(kNothingSatisfies);
    }
    return automaton;
  };
  return parts;
}

std::unique_ptr<Automaton> make_tags(const Compiling& with, const GrammarSource& source,
                                     const TagFormat& format) {
  TagCompiler compiler;
  OptionsByWhitespace options;
  compiler.compile = [&](const TagContent& content) {
    return make_content(with, source, content, options);
  };
  compiler.require_token = [&](const std::string& name) { return with.require_token(name); };
  compiler.find_token = [&](const std::string& name) -> std::optional<Token> {
    return with.vocabulary == nullptr ? std::nullopt : with.vocabulary->find_token(name);
  };
  compiler.is_end = [&](Token token) { return with.is_end(token); };
  return make_tag_automaton(make_tag_program(format, compiler));
}

std::unique_ptr<Automaton> make_tool_calls(const Compiling& with, const GrammarSource& source,
                                           const JsonValue& request) {
  OptionsByWhitespace options;
  Compiling check = with;
  bool is_unused = false;  // calls have the white space of their style or request
  check.has_any_whitespace = &is_unused;
  return make_tags(with, source, parse_tool_calls(request, [&](const JsonValue& schema) {
                     (void)make_content(check, source, {.type = "json_schema", .schema = schema},
                                        options);
                   }));
}

std::unique_ptr<Automaton> make_of_kind(const Compiling& with, const GrammarSource& source,
                                        const std::string& name) {
  RegexStore& regexes = with.languages.regexes;
  switch (source.kind) {
    case GrammarKind::kJsonSchema:
      check_whitespace(source.schema);
      return make_schema(with, parse_json(source.text, name), source.schema, source.limits);
    case GrammarKind::kRegex:
      return make_regex_automaton(
          regexes, parse_regex(regexes, source.text, false, RegexDialect::kEcmaStrict));
    case GrammarKind::kGbnf:
      return make_gbnf_automaton(regexes, source.text, name, parts_of_rules(with, source));
    case GrammarKind::kLark:
      return make_lark_automaton(regexes, source.text, name, parts_of_rules(with, source));
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

/// The automaton of a source; throws for a bound of white space that none of its schemas has.
std::unique_ptr<Automaton> make_with_own_options(const Compiling& with, const GrammarSource& source,
                                                 const std::string& name) {
  if (with.has_any_whitespace != nullptr) {
    return make_of_kind(with, source, name);  // the options are those of the whole
  }
  bool has_any_whitespace = false;
  Compiling own = with;
  own.has_any_whitespace = &has_any_whitespace;
  auto automaton = make_of_kind(own, source, name);
  if (source.schema.max_whitespace > 0 && !has_any_whitespace) {
    throw GrammarError(
        fmt::format("max_whitespace is {}, but no schema in it has the whitespace 'any', which is "
                    "all that it bounds. Set that, or leave max_whitespace out.",
                    source.schema.max_whitespace));
  }
  return automaton;
}

/// An automaton with a start; every error begins with the name.
std::unique_ptr<Automaton> make_automaton(const Compiling& with, const GrammarSource& source) {
  const std::string name = source.name.empty() ? grammar_kind_name(source.kind) : source.name;
  try {
    auto automaton = make_with_own_options(with, source, name);
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
    std::vector<std::string> tokens;
    return make_automaton({languages, names, &tokens}, source);
  };
  return compile_automaton(vocabulary, source.limits, source.cuts, make);
}

std::vector<std::string> check_grammar(const GrammarSource& source) {
  SharedLanguages languages;
  languages.regexes.allow(source.limits.max_regex_states);
  std::vector<std::string> tokens;
  (void)make_automaton({.languages = languages, .names = &tokens}, source);
  return tokens;
}

}  // namespace specdec
