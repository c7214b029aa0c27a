#include "experiments/grammar/commands_grammar.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "core/randomness.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/config/config_file.h"
#include "experiments/grammar/grammar_arguments.h"
#include "experiments/grammar/grammar_cases.h"
#include "experiments/grammar/grammar_test_command.h"
#include "experiments/terminal/command_line.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/plain_text.h"
#include "experiments/terminal/progress.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_source.h"
#include "grammar/sampling/grammar_sampler.h"
#include "grammar/tags/tool_calls.h"

namespace specdec {
namespace {

constexpr size_t kShownTokens = 20;
constexpr size_t kShownCharacters = 300;

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
                                    {"--kv-dtype", flags.kv_dtype},
                                    {"--cache", flags.cache},
                                    {"--prefill-products", flags.prefill_products},
                                    {"--memory-limit", flags.memory_limit},
                                    {"--layer-file", flags.layer_file}}) {
    if (!value.empty() && value != "cpu") {
      throw ConfigError(fmt::format(
          "{} {}: grammars are followed on the CPU, without a model; leave it out", name, value));
    }
  }
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
  result.vocabulary = prepare_vocabulary(*result.tokenizer);
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
  GrammarSampleOptions options = {.max_tokens = max_tokens,
                                  .max_seconds = source.limits.max_seconds};
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

/// The name of a capture: in quotes where it could be misread.
std::string capture_name(const std::string& name) {
  const std::string quoted = to_json_string(name);
  const bool is_plain = quoted == '"' + name + '"' && name.find(':') == std::string::npos;
  return is_plain ? one_line(name, kShownCharacters) : quote_line(name);
}

/// The mask after a text; of a canonical grammar, after the tokenizer's own tokens of it.
TokenMask mask_after(const LoadedGrammar& file, std::string_view text, StateId state) {
  if (file.source.cuts == Cuts::kCanonical && state != CompiledGrammar::kEnded) {
    state = file.grammar->start();
    for (const Token token : file.tokenizer->encode_after(TextStart::kContinued, text)) {
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
      << fmt::format("tokens        {} of {}{}{}\n", tokens.size(), grammar.vocab_size(),
                     tokens.empty() ? "" : ": ", some_pieces(tokens, *file.tokenizer));
  if (tokens.empty() && state != CompiledGrammar::kEnded) {
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

/// The name of a named token or one byte, and the state after it. The name of one that ends the
/// text is that token at the end of `text`, and elsewhere where its bytes are not allowed.
std::pair<StateId, TextPart> step_of_text(const CompiledGrammar& grammar, StateId state,
                                          std::string_view text) {
  if (state == CompiledGrammar::kEnded) {
    return {Automaton::kDead, {}};
  }
  const std::pair<StateId, TextPart> byte = {grammar.next(state, text.substr(0, 1)),
                                             {text.substr(0, 1)}};
  for (const Token token : grammar.named_tokens()) {
    const std::string name = grammar.vocabulary().token_name(token);
    const StateId next =
        text.starts_with(name) ? grammar.next(state, token) : StateId{Automaton::kDead};
    const bool ends = next == CompiledGrammar::kEnded;
    if (next != Automaton::kDead &&
        (!ends || name.size() == text.size() || byte.first == Automaton::kDead)) {
      return {next, {text.substr(0, name.size()), token}};
    }
  }
  return byte;
}

/// What marked rules matched of a text, one line each.
void print_captures(std::ostream& out, const CompiledGrammar& grammar,
                    const std::vector<TextPart>& text) {
  try {
    for (const Capture& capture : grammar.captures(text)) {
      out << fmt::format("captured      {}: {}\n", capture_name(capture.name),
                         quote_line(capture.bytes));
    }
  } catch (const GrammarError& error) {
    out << fmt::format("captured      unknown: {}\n", error.what());
  }
}

int explain(const CommandLine& context, const ExplainArguments& arguments) {
  const LoadedGrammar file = load_grammar(arguments);
  const std::string_view text = arguments.text;
  StateId state = file.grammar->start();
  std::vector<TextPart> parts;
  size_t at = 0;
  while (at < text.size()) {
    const auto [next, part] = step_of_text(*file.grammar, state, text.substr(at));
    if (next == Automaton::kDead) {
      break;
    }
    const bool only_ends = next == CompiledGrammar::kEnded && file.grammar->is_complete(state);
    if (!only_ends) {
      parts.push_back(part);
    }
    state = next;
    at += part.bytes.size();
  }
  if (at < text.size()) {
    context.out << fmt::format("not allowed   from byte {} on: {}\n", at,
                               one_line(text.substr(at), kShownCharacters));
  }
  context.out << fmt::format(
      "allowed       {}\n",
      at == 0 ? "(the beginning)" : one_line(text.substr(0, at), kShownCharacters));
  print_captures(context.out, *file.grammar, parts);
  print_place(context.out, file, text.substr(0, at), state);
  return 0;
}

// ---- the command line --------------------------------------------------------------------------

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
  add_seed_option(*command, arguments->seed);
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
  add_grammar_test(*command, context);
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
