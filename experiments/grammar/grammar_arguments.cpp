#include "experiments/grammar/grammar_arguments.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/grammar/grammar_cases.h"
#include "experiments/grammar/grammar_config.h"

namespace specdec {
namespace {

constexpr std::array kSchemaOptions = {
    "--order",    "--format",           "--whitespace", "--max-whitespace", "--escapes",
    "--registry", "--max-alternatives", "--max-steps",  "--max-states"};

/// What CLI11 calls a check.
std::string whitespace_mistake(const std::string& name) {
  try {
    check_whitespace(name);
    return "";
  } catch (const GrammarError& error) {
    return error.what();
  }
}

bool is_config(const std::string& file) {
  return file.ends_with(".yaml") || file.ends_with(".yml");
}

/// The map `grammar:` of a config.
GrammarSource read_config_grammar(const std::filesystem::path& file) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode root(load_config(file, {}, *errors), errors, file.parent_path());
  GrammarConfig config = read_grammar(root.child("grammar"));
  errors->throw_if_any();
  if (config.per_prompt) {
    throw ConfigError(
        fmt::format("{}: grammar: each prompt brings its own schema (per_prompt); "
                    "give a schema's file instead of the config",
                    file.string()));
  }
  return std::move(config.source);
}

GrammarKind kind_of(const GrammarArguments& arguments) {
  if (!arguments.pattern.empty()) {
    if (!arguments.type.empty() && arguments.type != "regex") {
      throw ConfigError(
          "--pattern is a regular expression, whatever --type says; leave out --type");
    }
    return GrammarKind::kRegex;
  }
  const auto kind = arguments.type.empty() ? grammar_kind_of_file(arguments.file)
                                           : parse_grammar_kind(arguments.type);
  if (!kind) {
    throw ConfigError(
        fmt::format("{}: the file's ending is none of .json (a JSON Schema), .regex, .gbnf, .lark "
                    "and .yaml (a config with a grammar); say with --type what it holds",
                    arguments.file));
  }
  return *kind;
}

/// Options that have no effect on a grammar are refused.
void check_options(const GrammarArguments& arguments, std::optional<GrammarKind> kind,
                   const GrammarSource& source = {}) {
  const auto refuse = [&](const char* option, const char* of) {
    if (arguments.command->count(option) > 0) {
      throw ConfigError(fmt::format("{} is an option of {}{}; leave it out", option, of,
                                    kind ? "" : "; a config's grammar has its own keys"));
    }
  };
  const bool has_schemas = kind == GrammarKind::kJsonSchema || may_have_schemas(source) ||
                           kind == GrammarKind::kTags || kind == GrammarKind::kToolCalls;
  if (kind == GrammarKind::kToolCalls) {
    refuse("--whitespace", "single schemas; the request has a key 'whitespace'");
  }
  if (!has_schemas) {
    for (const char* option : kSchemaOptions) {
      refuse(option, "JSON Schemas");
    }
  }
  if (!kind) {
    refuse("--max-regex-states", "single grammars");
  }
  if (kind != GrammarKind::kGbnf && kind != GrammarKind::kLark) {
    refuse("--start", "grammars in GBNF and Lark");
  }
}

}  // namespace

JsonSchemaOptions SchemaArguments::schema_options() const {
  JsonSchemaOptions options;
  options.schema_order = order == "schema";
  options.assert_formats = format == "assert";
  options.whitespace = whitespace;
  options.max_whitespace = max_whitespace;
  options.usual_max_whitespace = usual_max_whitespace;
  options.escapes = escapes == "any" ? EscapeStyle::kAny : EscapeStyle::kMinimal;
  options.registry = registry.empty() ? options.registry : read_schema_registry(registry);
  return options;
}

void add_schema_options(CLI::App& command, SchemaArguments& arguments, std::string order) {
  arguments.order = std::move(order);
  command
      .add_option("--tokenizer", arguments.tokenizer,
                  "a checkpoint folder, tokenizer.model or tokenizer.json")
      ->required();
  command
      .add_option("--order", arguments.order,
                  "order of an object's known names: the schema's, or any; with any, numbers may "
                  "also be written as 1.0 or 1e2")
      ->check(CLI::IsMember({"any", "schema"}))
      ->capture_default_str();
  command.add_option("--format", arguments.format, "whether the keyword `format` is an assertion")
      ->check(CLI::IsMember({"assert", "annotate"}))
      ->capture_default_str();
  command
      .add_option("--whitespace", arguments.whitespace,
                  "white space: compact, spaced (', ' and ': '), any (at most a line break and 16 "
                  "other characters between two tokens), or indent:N")
      ->check(CLI::Validator(whitespace_mistake, "STYLE"))
      ->capture_default_str();
  auto* max_whitespace =
      command
          .add_option("--max-whitespace", arguments.max_whitespace,
                      "with --whitespace any: at most N characters of any kind instead")
          ->check(CLI::Range(uint32_t{1}, kMaxWhitespace));
  if (arguments.usual_max_whitespace > 0) {
    max_whitespace->default_str(fmt::format("{}", arguments.usual_max_whitespace));
  }
  command
      .add_option("--escapes", arguments.escapes,
                  "escapes in strings: minimal (what JSON requires) or any")
      ->check(CLI::IsMember({"any", "minimal"}))
      ->capture_default_str();
  command.add_option("--registry", arguments.registry,
                     "JSON Lines {uri, schema}: documents that $ref may refer to");
  const auto add_limit = [&](const char* name, uint64_t& limit, const char* what) {
    command.add_option(name, limit, what)
        ->check(CLI::Range(uint64_t{1}, kMaxGrammarLimit))
        ->capture_default_str();
  };
  add_limit("--max-alternatives", arguments.limits.max_alternatives,
            "limit of alternatives tracked for one value");
  add_limit("--max-steps", arguments.limits.max_steps,
            "limit of work on alternatives, for the schema and for each step of a text");
  add_limit("--max-seconds", arguments.limits.max_seconds,
            "limit of time for compiling a schema, for each step of a text and for each sampled "
            "text");
  add_limit("--max-states", arguments.limits.max_states, "limit of states of the automaton");
  add_limit("--max-regex-states", arguments.limits.max_regex_states,
            "limit of states of regular expressions");
}

void add_grammar_options(CLI::App& command, GrammarArguments& arguments) {
  arguments.command = &command;
  command.add_option(
      "GRAMMAR", arguments.file,
      "a JSON Schema (.json), .gbnf, .lark or .regex file, or the `grammar:` of a config (.yaml)");
  command.add_option("--pattern", arguments.pattern, "a regular expression instead of a file");
  command
      .add_option("--type", arguments.type, "the grammar's type, if the file name does not tell")
      ->check(CLI::IsMember({"json_schema", "regex", "gbnf", "lark", "tags", "tool_calls"}));
  command.add_option("--start", arguments.start,
                     "GBNF and Lark: the start rule (default: root, start)");
  add_schema_options(command, arguments, "schema");
  for (const char* option : kSchemaOptions) {
    command.get_option(option)->group("JSON Schemas");
  }
}

GrammarSource read_grammar_source(const GrammarArguments& arguments) {
  if (arguments.file.empty() == arguments.pattern.empty()) {
    throw ConfigError(arguments.file.empty()
                          ? "give a grammar's file, or a regular expression with "
                            "--pattern"
                          : "give either a grammar's file or --pattern");
  }
  if (arguments.type.empty() && is_config(arguments.file)) {
    check_options(arguments, std::nullopt);
    return read_config_grammar(arguments.file);
  }
  const GrammarKind kind = kind_of(arguments);
  GrammarSource source;
  if (arguments.pattern.empty()) {
    source = read_grammar_file(arguments.file, kind);
  } else {
    source.kind = kind;
    source.name = "--pattern";
    source.text = arguments.pattern;
  }
  check_options(arguments, kind, source);
  source.start = arguments.start;
  source.schema = arguments.schema_options();
  source.limits = arguments.limits;
  return source;
}

std::shared_ptr<GrammarVocabulary> prepare_vocabulary(const Tokenizer& tokenizer) {
  return make_grammar_vocabulary(tokenizer, std::nullopt, {}, {.folder = default_cache_folder()});
}

}  // namespace specdec
