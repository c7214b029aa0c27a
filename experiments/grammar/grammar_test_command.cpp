#include "experiments/grammar/grammar_test_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <ostream>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/grammar/grammar_arguments.h"
#include "experiments/grammar/grammar_cases.h"
#include "experiments/grammar/grammar_check.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

constexpr size_t kShownProblems = 20;

struct TestArguments : SchemaArguments {
  int64_t limit = 0;
  JsonOption json;
  bool verbose = false;
  bool bits = false;
};

std::vector<CaseResult> check_all(const CommandLine& context, const TestArguments& arguments,
                                  const std::shared_ptr<GrammarVocabulary>& vocabulary,
                                  const Tokenizer& tokenizer, JsonOutput& json) {
  const auto cases = read_grammar_cases(arguments.file, arguments.whitespace, arguments.limit);
  const CheckOptions options{arguments.schema_options(), arguments.bits, arguments.limits};
  check_whitespace(options.schema);
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
  const auto vocabulary = prepare_vocabulary(*tokenizer);
  if (arguments.escapes == "any") {  // what the vocabulary prepares is for the other style
    vocabulary->strings().walk(0, RegexStore::kAll, EscapeStyle::kAny);
  }
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

}  // namespace

void add_grammar_test(CLI::App& grammar, CommandLine& context) {
  auto* command = grammar.add_subcommand(
      "test", "check grammars against valid and invalid texts, and time the masks");
  const auto arguments = std::make_shared<TestArguments>();
  command
      ->add_option("CASES", arguments->file,
                   "JSON Lines {id, schema, tests: [{valid, data}]}, or {id, grammar, tests: "
                   "[{valid, text}]} with a grammar as in a config; or file and description "
                   "instead of id, as in the JSON Schema Test Suite")
      ->required();
  arguments->escapes = "any";  // of texts that exist already
  arguments->usual_max_whitespace = kRecordedWhitespace;
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
      "each grammar, and each step of each instance. --order, --format, --whitespace, "
      "--max-whitespace,\n"
      "--escapes, --registry and the limits are for lines with a schema; a grammar has its own "
      "keys:\n"
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

}  // namespace specdec
