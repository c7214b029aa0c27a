#include "experiments/grammar/commands_grammar.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "core/randomness.h"
#include "core/tokenizer.h"
#include "experiments/config/config_file.h"
#include "experiments/grammar/grammar_arguments.h"
#include "experiments/grammar/grammar_cases.h"
#include "experiments/grammar/grammar_check.h"
#include "experiments/terminal/command_line.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"
#include "experiments/terminal/plain_text.h"
#include "experiments/terminal/progress.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_source.h"
#include "grammar/sampling/grammar_sampler.h"
#include "grammar/tags/tool_calls.h"

namespace specdec {
namespace {

constexpr size_t kShownProblems = 20;
constexpr size_t kShownTokens = 20;
constexpr size_t kShownCharacters = 300;

struct TestArguments : SchemaArguments {
  int64_t limit = 0;
  JsonOption json;
  bool verbose = false;
  bool bits = false;
};

struct SampleArguments : GrammarArguments {
  int64_t count = 1;
  int64_t max_tokens = 512;
  uint64_t seed = 0;
};

struct ExplainArguments : GrammarArguments {
  std::string text;
};

void refuse_model_flags(const GlobalFlags& flags) {
  for (const auto& [name, value] : {std::pair("--device", flags.device),
                                    {"--dtype", flags.dtype},
                                    {"--activations", flags.activations},
                                    {"--kv-dtype", flags.kv_dtype}}) {
    if (!value.empty() && value != "cpu") {
      throw ConfigError(fmt::format(
          "{} {}: grammars are followed on the CPU, without a model; leave it out", name, value));
    }
  }
}

std::shared_ptr<GrammarVocabulary> prepare(const Tokenizer& tokenizer) {
  return make_grammar_vocabulary(tokenizer, std::nullopt, {}, {.folder = default_cache_folder()});
}

// ---- test --------------------------------------------------------------------------------------

std::vector<CaseResult> check_all(const CommandLine& context, const TestArguments& arguments,
                                  const std::shared_ptr<GrammarVocabulary>& vocabulary,
                                  const Tokenizer& tokenizer, JsonOutput& json) {
  const auto cases = read_grammar_cases(arguments.file, arguments.whitespace, arguments.limit);
  const CheckOptions options{arguments.schema_options(), arguments.bits, arguments.limits};
  const InterruptGuard interrupts;
  Progress progress(context.err, Progress::choose_style(context.flags.quiet),
                    static_cast<int64_t>(cases.size()), "grammars");
  std::vector<CaseResult> results;
  for (const GrammarCase& test_case : cases) {
    InterruptGuard::check();
    results.push_back(check_grammar_case(test_case, vocabulary, tokenizer, options));
    json.write(case_json(results.back()));
    progress.advance(test_case.id);
  }
  json.commit();
  return results;
}

std::string save_and_say_where(GrammarVocabulary& vocabulary) {
  const std::string path = vocabulary.cache_path().string();
  if (path.empty()) {
    return "made anew";
  }
  const std::string from = vocabulary.was_cached() ? "read from " + path : "made anew";
  try {
    vocabulary.save();
  } catch (const Error& error) {
    return fmt::format("{}; not kept: {}", from, error.what());
  }
  return vocabulary.was_cached() ? from : fmt::format("{}, kept in {}", from, path);
}

int test(const CommandLine& context, const TestArguments& arguments) {
  const auto tokenizer = load_tokenizer(arguments.tokenizer);
  const auto begin = std::chrono::steady_clock::now();
  const auto vocabulary = prepare(*tokenizer);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  JsonOutput json(arguments.json, context.out);
  const auto results = check_all(context, arguments, vocabulary, *tokenizer, json);
  if (json.replaces_text()) {
    return 0;
  }
  std::vector<std::string> lines;
  for (const CaseResult& result : results) {
    const auto problems = problem_lines(result);
    lines.insert(lines.end(), problems.begin(), problems.end());
  }
  const size_t shown = arguments.verbose ? lines.size() : std::min(lines.size(), kShownProblems);
  for (size_t i = 0; i < shown; ++i) {
    context.out << lines[i] << "\n";
  }
  if (shown < lines.size()) {
    context.out << fmt::format("... and {} more; --verbose shows all\n", lines.size() - shown);
  }
  context.out << (lines.empty() ? "" : "\n");
  context.out << fmt::format("tokenizer prepared          {:.0f} ms, {}\n", taken.count(),
                             save_and_say_where(*vocabulary));
  print_grammar_totals(context.out, results, vocabulary->strings().walks());
  return 0;
}

// ---- sample ------------------------------------------------------------------------------------

struct LoadedGrammar {
  GrammarSource source;
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<GrammarVocabulary> vocabulary;
  std::shared_ptr<const CompiledGrammar> grammar;
};

LoadedGrammar load_grammar(const GrammarArguments& arguments) {
  LoadedGrammar result;
  result.source = read_grammar_source(arguments);
  result.tokenizer = load_tokenizer(arguments.tokenizer);
  result.vocabulary = prepare(*result.tokenizer);
  if (result.source.cuts == Cuts::kCanonical) {
    result.vocabulary->learn_cuts(*result.tokenizer);
  }
  result.grammar = compile_grammar(result.vocabulary, result.source);
  return result;
}

/// Texts that begin tags, and names in the schemas of their contents.
void add_tags(const JsonValue& structure, GrammarSampleOptions& options) {
  for (const JsonValue& item : structure.items) {
    add_tags(item, options);
  }
  for (const auto& [name, value] : structure.members) {
    if (name == "begin" && value.is(JsonValue::Type::kString)) {
      options.tags.push_back(value.text);
    }
    if (name == "json_schema" || name == "parameters") {
      const auto names = schema_names(value);
      options.names.insert(options.names.end(), names.begin(), names.end());
    } else {
      add_tags(value, options);
    }
  }
}

GrammarSampleOptions sample_options(const GrammarSource& source, int64_t max_tokens) {
  GrammarSampleOptions options = {.max_tokens = max_tokens};
  if (source.kind == GrammarKind::kJsonSchema) {
    options.names = schema_names(parse_json(source.text, source.name));
  }
  if (source.kind == GrammarKind::kTags || source.kind == GrammarKind::kToolCalls) {
    const JsonValue structure = parse_json(source.text, source.name);
    add_tags(structure, options);
    if (const JsonValue* style = structure.find("style")) {
      options.tags.push_back(tool_call_begin(style->text));
    }
  }
  for (const GrammarSource::Trigger& trigger : source.triggers) {
    options.tags.push_back(trigger.begin);
    const auto inner = sample_options(trigger.grammar, max_tokens);
    options.names.insert(options.names.end(), inner.names.begin(), inner.names.end());
  }
  return options;
}

int sample(const CommandLine& context, const SampleArguments& arguments) {
  LoadedGrammar file = load_grammar(arguments);
  const auto options = sample_options(file.source, arguments.max_tokens);
  const InterruptGuard interrupts;
  Progress progress(context.err, Progress::choose_style(context.flags.quiet), arguments.count,
                    "documents");
  for (int64_t i = 0; i < arguments.count; ++i) {
    InterruptGuard::check();
    if (file.grammar->is_used_up()) {
      file.grammar = compile_grammar(file.vocabulary, file.source);
    }
    CounterRandomness random(arguments.seed, static_cast<uint32_t>(i));
    const auto tokens = sample_grammar(file.grammar, options, random);
    if (!tokens) {
      throw Error(
          fmt::format("{}: found no document of at most {} tokens; allow more with --max-tokens",
                      file.source.name, arguments.max_tokens));
    }
    for (const Token token : *tokens) {
      context.out << file.grammar->vocabulary().token_name(token);
    }
    context.out << "\n" << std::flush;
    if (arguments.count > 1) {
      progress.advance("sampling");
    }
  }
  return 0;
}

// ---- explain -----------------------------------------------------------------------------------

/// A text for people, in quotes; what is not UTF-8 becomes U+FFFD or '?'.
std::string quote_line(std::string_view text) {
  return one_line(to_json_string(text), kShownCharacters);
}

/// Some tokens of a mask by their pieces: byte pieces only where there are no others.
std::string some_pieces(const std::vector<Token>& tokens, const Tokenizer& tokenizer) {
  std::vector<std::string> pieces;
  for (const bool bytes : {false, true}) {
    for (size_t i = 0; i < tokens.size() && pieces.size() < kShownTokens; ++i) {
      const std::string_view piece = tokenizer.piece(tokens[i]);
      const bool is_byte = piece.size() == 6 && piece.starts_with("<0x");
      if (is_byte == bytes) {
        pieces.push_back(quote_line(piece));
      }
    }
  }
  std::string text;
  for (const std::string& piece : pieces) {
    text += (text.empty() ? "" : " ") + piece;
  }
  return text + (pieces.size() < tokens.size() ? " ..." : "");
}

/// The mask after a text; of a canonical grammar, after the tokenizer's own tokens of it.
TokenMask mask_after(const LoadedGrammar& file, std::string_view text, StateId state) {
  if (file.source.cuts == Cuts::kCanonical) {
    state = file.grammar->start();
    for (const Token token : file.tokenizer->encode(text)) {
      state = file.grammar->next(state, token);
    }
  }
  return file.grammar->mask(state);
}

/// The place after `text`.
void print_place(std::ostream& out, const LoadedGrammar& file, std::string_view text,
                 StateId state) {
  const CompiledGrammar& grammar = *file.grammar;
  const TokenMask mask = mask_after(file, text, state);
  const std::vector<Token> tokens = mask.tokens();
  const std::string forced = grammar.forced_bytes(state);
  out << fmt::format("may end here  {}\n", grammar.is_complete(state) ? "yes" : "no")
      << fmt::format("forced        {}\n", forced.empty() ? "nothing" : quote_line(forced))
      << fmt::format("tokens        {} of {}: {}\n", tokens.size(), grammar.vocab_size(),
                     some_pieces(tokens, *file.tokenizer));
  if (tokens.empty()) {
    out << "              the tokenizer cuts no text of the grammar here\n";
  } else if (mask.is_fallback()) {
    out << "              no way on was found in the tokenizer's own cut\n";
  }
  out << "what may come next:\n";
  const std::string lines = grammar.explain(state);
  for (std::string_view rest = lines; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    out << "  " << rest.substr(0, end) << "\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

/// The state after the name of a named token, else after one byte, and how long that is.
std::pair<StateId, size_t> step_of_text(const CompiledGrammar& grammar, StateId state,
                                        std::string_view text) {
  for (const Token token : grammar.named_tokens()) {
    const std::string name = grammar.vocabulary().token_name(token);
    const StateId next =
        text.starts_with(name) ? grammar.next(state, token) : StateId{Automaton::kDead};
    if (next != Automaton::kDead && next != CompiledGrammar::kEnded) {
      return {next, name.size()};
    }
  }
  return {grammar.next(state, text.substr(0, 1)), 1};
}

int explain(const CommandLine& context, const ExplainArguments& arguments) {
  const LoadedGrammar file = load_grammar(arguments);
  const std::string_view text = arguments.text;
  StateId state = file.grammar->start();
  size_t at = 0;
  while (at < text.size()) {
    const auto [next, size] = step_of_text(*file.grammar, state, text.substr(at));
    if (next == Automaton::kDead) {
      break;
    }
    state = next;
    at += size;
  }
  if (at < text.size()) {
    context.out << fmt::format("not allowed   from byte {} on: {}\n", at,
                               one_line(text.substr(at), kShownCharacters));
  }
  context.out << fmt::format(
      "allowed       {}\n",
      at == 0 ? "(the beginning)" : one_line(text.substr(0, at), kShownCharacters));
  print_place(context.out, file, text.substr(0, at), state);
  return 0;
}

// ---- the command line --------------------------------------------------------------------------

void add_test(CLI::App& grammar, CommandLine& context) {
  auto* command = grammar.add_subcommand(
      "test", "check grammars against valid and invalid texts, and time the masks");
  const auto arguments = std::make_shared<TestArguments>();
  command
      ->add_option("CASES", arguments->file,
                   "JSON Lines {id, schema, tests: [{valid, data}]}, or {id, grammar, tests: "
                   "[{valid, text}]} with a grammar as in a config; or file and description "
                   "instead of id, as in the JSON Schema Test Suite")
      ->required();
  add_schema_options(*command, *arguments, "any");
  command->add_option("--limit", arguments->limit, "only the first N lines; 0 = all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40U));
  add_json_option(*command, arguments->json, "one line per grammar, with all times");
  command->add_flag("--bits", arguments->bits,
                    "include writing one bit per token in a mask's time");
  command->add_flag("--verbose", arguments->verbose,
                    fmt::format("print all errors, not only the first {}", kShownProblems));
  command->footer(
      "Each instance is tokenized; a mask is computed before each token and must allow it, and "
      "must allow\n"
      "the end tokens at the end. Wrong answers are reported, with exit code 0. Timed: the first "
      "mask of\n"
      "each grammar, and each step of each instance. --order, --format, --whitespace, --registry "
      "and the\n"
      "limits are for lines with a schema; a grammar has its own keys:\n"
      "  {\"id\": \"date\", \"grammar\": {\"type\": \"lark\", \"file\": \"date.lark\"},\n"
      "   \"tests\": [{\"valid\": true, \"text\": \"2024-02-29\"}, {\"valid\": false, \"text\": "
      "\"2023-02-29\"}]}\n"
      "Examples:\n"
      "  specdec grammar test schemas.jsonl --tokenizer models/target\n"
      "  specdec grammar test suite.jsonl --tokenizer models/target --format annotate\n"
      "    --registry remotes.jsonl --json results.jsonl");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return test(context, *arguments); };
  });
}

void add_sample(CLI::App& grammar, CommandLine& context) {
  auto* command = grammar.add_subcommand("sample", "sample random texts of a grammar");
  const auto arguments = std::make_shared<SampleArguments>();
  add_grammar_options(*command, *arguments);
  command->add_option("-n,--count", arguments->count, "number of texts, one per line")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31U))
      ->capture_default_str();
  command
      ->add_option("--max-tokens", arguments->max_tokens,
                   "limit per text; after half of it, the shortest completion is taken")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24U))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "random seed")->capture_default_str();
  command->footer(
      "A random walk over the tokens that the masks allow, without a model.\n"
      "Examples:\n"
      "  specdec grammar sample person.json --tokenizer models/target -n 5 --seed 7\n"
      "  specdec grammar sample configs/grammars/sql.lark --tokenizer models/target\n"
      "  specdec grammar sample configs/grammars/sql.lark --start condition "
      "--tokenizer models/target\n"
      "  specdec grammar sample --pattern '[A-Z]{3}-[0-9]{1,4}' --tokenizer models/target\n"
      "  specdec grammar sample experiment.yaml --tokenizer models/target");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return sample(context, *arguments); };
  });
}

void add_explain(CLI::App& grammar, CommandLine& context) {
  auto* command =
      grammar.add_subcommand("explain", "show what a grammar allows after a prefix, and why");
  const auto arguments = std::make_shared<ExplainArguments>();
  add_grammar_options(*command, *arguments);
  command->add_option("--text", arguments->text, "the prefix (default: empty)");
  command->footer(
      "If the prefix is not allowed, shows the byte where it fails and what would be allowed "
      "there.\n"
      "Examples:\n"
      "  specdec grammar explain person.json --tokenizer models/target --text '{\"name\":'\n"
      "  specdec grammar explain configs/grammars/iso_date.gbnf --tokenizer models/target "
      "--text 2023-02-2");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return explain(context, *arguments); };
  });
}

}  // namespace

void add_grammar_command(CLI::App& app, CommandLine& context) {
  auto* command = app.add_subcommand("grammar", "grammars as token masks: test, sample, explain");
  command->require_subcommand(1);
  command->callback([&context] { refuse_model_flags(context.flags); });
  add_test(*command, context);
  add_sample(*command, context);
  add_explain(*command, context);
  command->footer(
      "Examples:\n"
      "  specdec grammar test schemas.jsonl --tokenizer models/target\n"
      "  specdec grammar sample person.json --tokenizer models/target -n 5\n"
      "  specdec grammar sample configs/grammars/sql.lark --tokenizer models/target\n"
      "  specdec grammar explain person.json --tokenizer models/target --text '{'");
}

int run_grammar_cli(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& err) {
  CommandLine context{out, err};
  return run_guarded(context, [&] {
    CLI::App app;
    begin_commands(app, context);
    add_grammar_command(app, context);
    const auto ended = parse_commands(app, arguments, context);
    return ended ? *ended : context.action();
  });
}

}  // namespace specdec
