#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/hub_cache.h"
#include "core/randomness.h"
#include "core/uncached_model.h"
#include "decoders/analysis/sequence_score.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/generation_arguments.h"
#include "experiments/config/config_file.h"
#include "experiments/metrics/request_metrics.h"
#include "experiments/run/prompt_grammars.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

struct GenerateArguments : GenerationArguments {
  std::string prompt, prompt_file, tokens;
  bool has_prompt = false;
  bool chat = false;
  bool ignore_eos = false;
  bool no_cache = false;
  JsonOption json;
  int64_t samples = 1;
  bool has_logprobs = false;
  int64_t alternatives = 0;  ///< to each token, with their log-probabilities
};

std::vector<Token> encode(const GenerateArguments& arguments, const ModelFiles& files,
                          std::string_view tools) {
  if (!arguments.tokens.empty()) {
    if (arguments.chat) {
      throw ConfigError("--chat needs a text: give --prompt, not --tokens");
    }
    return parse_token_list(arguments.tokens);
  }
  if (files.tokenizer == nullptr) {
    throw ConfigError(
        files.no_text(fmt::format("{} has no tokenizer (tokenizer.model or tokenizer.json): give "
                                  "--tokens instead of a text",
                                  files.folder.string())));
  }
  const auto text = arguments.prompt_file.empty()
                        ? arguments.prompt
                        : read_text_file(arguments.prompt_file, size_t{64} << 20U);
  return encode_prompt(*files.tokenizer, {{"user", text}}, arguments.chat, files.config.bos_id,
                       tools);
}

nlohmann::json hypotheses_json(const Generation& generation) {
  auto hypotheses = nlohmann::json::array();
  for (const Hypothesis& hypothesis : generation.hypotheses) {
    hypotheses.push_back({{"tokens", hypothesis.tokens}, {"score", hypothesis.score}});
  }
  return hypotheses;
}

/// The `count` most likely tokens of a row [vocab] of log-probabilities; ties to the lower id.
nlohmann::json top_json(std::span<const double> log_probs, int64_t count) {
  std::vector<Token> tokens(log_probs.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end = tokens.begin() + std::min(count, static_cast<int64_t>(tokens.size()));
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](Token a, Token b) {
    const double of_a = log_probs[static_cast<size_t>(a)];
    const double of_b = log_probs[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  auto top = nlohmann::json::array();
  for (auto token = tokens.begin(); token != end; ++token) {
    top.push_back({{"token", *token}, {"log_prob", log_probs[static_cast<size_t>(*token)]}});
  }
  return top;
}

/// The raw distribution's log-probability of each new token, by one more pass of the target.
nlohmann::json logprobs_json(LanguageModel& target, const std::vector<Token>& prompt,
                             const std::vector<Token>& output, int64_t alternatives) {
  std::vector<Token> sequence = prompt;
  sequence.insert(sequence.end(), output.begin(), output.end());
  LogProbReader reader(target, sequence, static_cast<int64_t>(prompt.size()));
  auto rows = nlohmann::json::array();
  while (!reader.done()) {
    const auto first = static_cast<size_t>(reader.position());
    const at::Tensor log_probs = reader.next().contiguous();
    const auto vocab = static_cast<size_t>(log_probs.size(1));
    for (size_t row = 0; row < static_cast<size_t>(log_probs.size(0)); ++row) {
      const std::span<const double> distribution(log_probs.const_data_ptr<double>() + row * vocab,
                                                 vocab);
      const Token token = sequence[first + row];
      rows.push_back({{"token", token}, {"log_prob", distribution[static_cast<size_t>(token)]}});
      if (alternatives > 0) {
        rows.back()["top"] = top_json(distribution, alternatives);
      }
    }
  }
  return rows;
}

nlohmann::json generation_json(const Generation& generation, const Request& request) {
  nlohmann::json json = {
      {"tokens", generation.tokens},
      {"text", decode_text(request.tokenizer, generation.tokens)},
      {"stop_reason", stop_reason_name(generation.stop_reason)},
      {"statistics", metrics_json(request_metrics(generation, std::ssize(request.prompt)))}};
  if (!generation.hypotheses.empty()) {
    json["hypotheses"] = hypotheses_json(generation);
  }
  return json;
}

/// Writes tokens as they come: as text, or as ids where there is no tokenizer.
class TokenPrinter {
 public:
  TokenPrinter(std::ostream& out, const Tokenizer* tokenizer) : out_(out) {
    if (tokenizer != nullptr) {
      decoder_.emplace(*tokenizer);
    }
  }
  void print(TokenSpan tokens) {
    for (const Token token : tokens) {
      out_ << (decoder_ ? decoder_->push(token) : fmt::format("{}{}", first_ ? "" : ",", token));
      first_ = false;
    }
    out_.flush();
    if (!out_) {
      throw Error("standard output cannot be written (closed, or the disk is full)");
    }
  }
  void finish() { out_ << (decoder_ ? decoder_->finish() : "") << "\n"; }

 private:
  std::ostream& out_;
  std::optional<StreamingDecoder> decoder_;
  bool first_ = true;
};

/// Generates once; streams to the output if asked to, and logs the statistics then.
Generation run_one(const CommandContext& context, const Request& request, bool streams,
                   DecodingStrategy& strategy) {
  TokenPrinter printer(context.out, request.tokenizer);
  Request streamed = request;
  streamed.on_tokens = [&](TokenSpan tokens) {
    InterruptGuard::check();
    if (streams) {
      printer.print(tokens);
    }
  };
  const Generation generation = strategy.generate(streamed);
  if (streams) {
    printer.finish();
    if (!context.flags.quiet) {
      context.err << metrics_line(request_metrics(generation, std::ssize(request.prompt)));
    }
  }
  return generation;
}

std::unique_ptr<DecodingStrategy> make_strategy(const StrategyConfig& config, LanguageModel& target,
                                                ModelLoader& loader, bool no_cache) {
  BuildContext build{target, loader, [](const std::string&, LanguageModel& model) {
                       const c10::InferenceMode guard;
                       return measure_cost_curve(model, {});
                     }};
  try {
    return config.make(build);
  } catch (const ConfigError& error) {
    throw no_cache ? ConfigError(fmt::format("--no-cache: {}", error.what())) : error;
  }
}

void check_arguments(const GenerateArguments& arguments) {
  const int sources = int{arguments.has_prompt} + int{!arguments.prompt_file.empty()} +
                      int{!arguments.tokens.empty()};
  if (sources != 1) {
    throw ConfigError("give one of --prompt, --prompt-file and --tokens");
  }
  if (arguments.has_logprobs && arguments.json.file.empty()) {
    throw ConfigError("--logprobs goes into the JSON: add --json");
  }
  arguments.sampling.validate();
}

int generate(const CommandContext& context, const GenerateArguments& arguments) {
  check_arguments(arguments);
  ModelCatalog catalog;
  const ModelFiles& files = catalog.read(arguments.model);
  if (!context.flags.quiet) {
    print_notes(files, context.err);
  }
  JsonOutput json(arguments.json, context.out);
  const auto grammar = read_grammar_text(arguments, files);
  const auto prompt = encode(arguments, files, grammar ? grammar->tools : "");
  const auto stop = make_stop(arguments, files, arguments.ignore_eos);
  const RunPlan plan{
      context.components, &files, catalog, arguments.sampling, arguments.max_new_tokens, true,
      grammar.has_value()};
  const auto config = read_strategy_text(arguments.strategy, plan, context.components);
  Constraint constraint = config.constraint;
  PromptGrammars grammars;
  if (grammar) {
    constraint.grammar = grammars.get(*grammar, {}, *files.tokenizer, stop.end_ids).grammar;
  }

  ModelLoader loader(context.model_options(), &catalog);
  const auto model = loader.load(arguments.model, parse_adapters(arguments.adapters));
  UncachedModel uncached(*model);
  LanguageModel& target = arguments.no_cache ? static_cast<LanguageModel&>(uncached) : *model;
  const auto strategy = make_strategy(config, target, loader, arguments.no_cache);

  const c10::InferenceMode guard;
  const InterruptGuard interrupts;
  auto results = nlohmann::json::array();
  for (int64_t sample = 0; sample < arguments.samples; ++sample) {
    if (arguments.samples > 1 && !json.replaces_text()) {
      context.out << fmt::format("[sample {} of {}]\n", sample + 1, arguments.samples);
    }
    CounterRandomness random(arguments.seed, 0, static_cast<uint32_t>(sample));
    const Request request{.prompt = prompt,
                          .sampling = arguments.sampling,
                          .stop = stop,
                          .random = random,
                          .tokenizer = files.tokenizer.get(),
                          .constraint = constraint};
    const Generation generation = run_one(context, request, !json.replaces_text(), *strategy);
    if (!json.is_wanted()) {
      continue;
    }
    results.push_back(generation_json(generation, request));
    if (arguments.has_logprobs) {
      results.back()["logprobs"] =
          logprobs_json(target, prompt, generation.tokens, arguments.alternatives);
    }
  }
  if (json.is_wanted()) {
    const auto all = arguments.samples > 1 ? nlohmann::json{{"samples", results}} : results[0];
    json.write(json_text(all) + "\n");
    json.commit();
  }
  return 0;
}

}  // namespace

void add_generate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("generate", "generate from one prompt, streaming the text");
  const auto arguments = std::make_shared<GenerateArguments>();
  auto* prompt = command->add_option("--prompt", arguments->prompt, "the text to continue");
  command->add_option("--prompt-file", arguments->prompt_file, "read the prompt from a file");
  command->add_option("--tokens", arguments->tokens, "token ids to continue, such as 2,5,7");
  command->add_flag("--chat", arguments->chat,
                    "treat the prompt as a user turn in the checkpoint's chat format");
  command->add_flag("--ignore-eos", arguments->ignore_eos, "do not stop at end-of-sequence tokens");
  command->add_flag("--no-cache", arguments->no_cache,
                    "compute each token from the whole text before it, without keys and values of "
                    "earlier steps: the oracle of the cached decoding, slow");
  add_generation_options(*command, *arguments);
  command
      ->add_option("-n,--samples", arguments->samples,
                   "samples to draw, as repeats 0, 1, ... of the seed")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20U))
      ->capture_default_str();
  auto* logprobs = command
                       ->add_option("--logprobs", arguments->alternatives,
                                    "with --json: log-probabilities of each new token and of the K "
                                    "most likely ones, before sampling parameters")
                       ->expected(0, 1)
                       ->type_name("[K]")
                       ->check(CLI::Range(int64_t{0}, int64_t{1} << 20U));
  add_json_option(*command, arguments->json,
                  "one JSON object: tokens (new ones only), text, stop_reason, statistics; "
                  "hypotheses of a beam search; {samples: [...]} for several samples");
  command->footer(
      "Examples:\n"
      "  specdec generate models/target --prompt \"To be, or\" --temperature 0.8 --seed 1\n"
      "  specdec generate models/target --prompt \"To be, or\" --json --strategy\n"
      "    '{type: speculative, drafter: {type: draft_model, weights: models/draft}}'\n"
      "  specdec generate models/target --prompt \"To be, or\" --json --strategy\n"
      "    '{type: beam_search, num_beams: 4}'\n"
      "  specdec generate models/target --prompt \"To be, or\" --adapter my_lora:0.5\n"
      "  specdec generate models/target --prompt \"A date:\" --grammar "
      "configs/grammars/iso_date.gbnf");
  command->callback([&context, arguments, prompt, logprobs] {
    arguments->has_prompt = prompt->count() > 0;
    arguments->has_logprobs = logprobs->count() > 0;
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      return generate(context, *arguments);
    };
  });
}

}  // namespace specdec
