#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/hub_cache.h"
#include "decoders/analysis/sequence_score.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/passages.h"
#include "experiments/components/cache_codebook.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

struct ScoreArguments {
  std::string model, file, against, against_dtype, against_cache;
  std::vector<std::string> adapters;
  std::optional<std::string> calibrate;
  std::string rotation = "none";
  int64_t window = 0;
  JsonOption json;
  bool tokens = false, by_magnitude = false;

  bool compares() const {
    return !against.empty() || !against_dtype.empty() || !against_cache.empty();
  }
  /// The other model, in words; `cache` is the model's own, which both have unless it is told.
  std::string other(const std::string& cache) const {
    const std::string& own = against_cache.empty() ? cache : against_cache;
    return (against.empty() ? model : against) +
           (against_dtype.empty() ? "" : " as " + against_dtype) +
           (own.empty() ? "" : " with cache " + own);
  }
};

/// Tokens of a window: as wanted, or as many as all models take.
int64_t choose_window(int64_t wanted, const LanguageModel& model, const LanguageModel* other) {
  int64_t most = model.max_length();
  most = other == nullptr ? most : std::min(most, other->max_length());
  if (wanted > most) {
    throw ConfigError(fmt::format("--window {} is more than the model takes ({})", wanted, most));
  }
  return wanted == 0 ? most : wanted;
}

/// Finds the levels of q3 for a model's keys and values, as it reads the windows.
class Calibration {
 public:
  /// Throws Error where the model's cache is not exact, or the file cannot be written.
  Calibration(const ScoreArguments& arguments, const ModelOptions& options)
      : file_(*arguments.calibrate),
        levels_(arguments.rotation == "hadamard" ? KvRotation::kHadamard : KvRotation::kNone,
                arguments.by_magnitude ? LevelWeights::kByMagnitude : LevelWeights::kEqual) {
    if (!options.cache.loss.empty() || kv_format_of(options) != KvFormat::kNative) {
      throw ConfigError(
          "--calibrate reads keys and values as they are: leave --kv-dtype out, and let --cache be "
          "exact, such as paged");
    }
    if (file_.empty() || file_ == "-") {
      throw ConfigError("--calibrate: name a file for the levels");
    }
    check_codebook_output(file_);
  }

  void add(const TransformerModel& model) {
    std::vector<int64_t> layers;
    for (size_t i = 0; i < model.weights().plan.size(); ++i) {
      const LayerPlan& layer = model.weights().plan[i];
      if (layer.kv_source < 0 && !is_recurrent(layer)) {
        layers.push_back(static_cast<int64_t>(i));
      }
    }
    levels_.add(model.cache(), model.cache().rows().front(), layers);
  }

  void write(const TransformerWeights& weights) const {
    write_cache_codebook(file_,
                         levels_.codebook(std::ssize(weights.plan), weights.weights_fingerprint));
  }

 private:
  std::string file_;
  CodebookCalibration levels_;
};

/// Scores of the windows, with a progress bar.
std::vector<SequenceScore> score_all(const CommandContext& context,
                                     const std::vector<PassageWindow>& windows,
                                     TransformerModel& model, LanguageModel* other,
                                     Calibration* calibration) {
  const InterruptGuard interrupts;
  Progress progress(context.err, Progress::choose_style(context.flags.quiet),
                    static_cast<int64_t>(windows.size()), "windows");
  std::vector<SequenceScore> scores;
  for (const PassageWindow& window : windows) {
    InterruptGuard::check();
    scores.push_back(score_sequence(model, window.tokens, other));
    if (calibration != nullptr) {
      calibration->add(model);
    }
    if (windows.size() > 1) {
      progress.advance("scoring");
    }
  }
  return scores;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Bits a byte of the scored text; null where passages were given as ids.
nlohmann::json bits_per_byte(double nats, const std::vector<Passage>& passages) {
  int64_t bytes = 0;
  for (const Passage& passage : passages) {
    if (passage.bytes == 0) {
      return {};
    }
    bytes += passage.bytes;
  }
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

nlohmann::json tokens_json(const std::vector<Passage>& passages,
                           const std::vector<PassageWindow>& windows,
                           const std::vector<SequenceScore>& scores) {
  auto rows = nlohmann::json::array();
  std::vector<size_t> positions(passages.size(), 1);
  for (size_t i = 0; i < windows.size(); ++i) {
    for (size_t at = 0; at < scores[i].log_probs.size(); ++at) {
      nlohmann::json row = {{"passage", passages[windows[i].passage].id},
                            {"position", positions[windows[i].passage]++},
                            {"token", windows[i].tokens[at + 1]},
                            {"log_prob", scores[i].log_probs[at]}};
      if (scores[i].comparison) {
        row["log_prob_against"] = scores[i].comparison->log_probs[at];
        row["kl"] = scores[i].comparison->kl[at];
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

nlohmann::json likelihood_json(double nats, double tokens, const std::vector<Passage>& passages) {
  return {{"nll", nats / tokens},
          {"perplexity", std::exp(nats / tokens)},
          {"bits_per_byte", bits_per_byte(nats, passages)}};
}

nlohmann::json summary_json(const std::vector<Passage>& passages,
                            const std::vector<SequenceScore>& scores) {
  int64_t tokens = 0;
  double nats = 0.0;
  double nats_other = 0.0;
  double kl = 0.0;
  SequenceScore::Comparison sums;
  for (const SequenceScore& score : scores) {
    tokens += static_cast<int64_t>(score.log_probs.size());
    nats -= sum(score.log_probs);
    if (score.comparison) {
      nats_other -= sum(score.comparison->log_probs);
      kl += sum(score.comparison->kl);
      sums.overlap += score.comparison->overlap;
      sums.same_best += score.comparison->same_best;
    }
  }
  const auto count = static_cast<double>(tokens);
  nlohmann::json json = likelihood_json(nats, count, passages);
  json["tokens"] = tokens;
  json["passages"] = passages.size();
  json["windows"] = scores.size();
  if (scores.front().comparison) {
    json["against"] = likelihood_json(nats_other, count, passages);
    json["against"]["kl"] = kl / count;
    json["against"]["kl_by_quarter"] = kl_by_quarter(scores);
    json["against"]["top1_agreement"] = static_cast<double>(sums.same_best) / count;
    json["against"]["overlap"] = sums.overlap / count;
  }
  return json;
}

void print_likelihood(std::ostream& out, const nlohmann::json& json) {
  out << fmt::format("negative log-likelihood  {:.6f} nats per token (perplexity {:.4f})\n",
                     json["nll"].get<double>(), json["perplexity"].get<double>());
  if (!json["bits_per_byte"].is_null()) {
    out << fmt::format("bits per byte            {:.6f}\n", json["bits_per_byte"].get<double>());
  }
}

void print_tokens(std::ostream& out, const nlohmann::json& rows, const Tokenizer* tokenizer) {
  for (const auto& row : rows) {
    const auto token = row["token"].get<Token>();
    const bool has_piece = tokenizer != nullptr && token < tokenizer->vocab_size();
    const auto passage = row["passage"].get<std::string>();
    out << fmt::format(
        "{:>8} {:>8} {:>12.6f}",
        passage + (passage.empty() ? "" : ":") + std::to_string(row["position"].get<int64_t>()),
        token, row["log_prob"].get<double>());
    if (row.contains("log_prob_against")) {
      out << fmt::format(" {:>12.6f}", row["log_prob_against"].get<double>());
    }
    out << "  " << (has_piece ? json_text(nlohmann::json(tokenizer->piece(token))) : "") << "\n";
  }
}

void print_summary(std::ostream& out, const nlohmann::json& json) {
  out << fmt::format("tokens                   {} in {} windows\n", json["tokens"].get<int64_t>(),
                     json["windows"].get<int64_t>());
  print_likelihood(out, json);
  if (json.contains("against")) {
    const auto& against = json["against"];
    out << fmt::format("\nagainst {}\n", against["model"].get<std::string>());
    print_likelihood(out, against);
    out << fmt::format(
        "KL(model || against)     {:.6g} nats per token\n"
        "top-1 agreement          {:.4f} %\n"
        "overlap, mean 1 - TV     {:.6f}\n",
        against["kl"].get<double>(), 100.0 * against["top1_agreement"].get<double>(),
        against["overlap"].get<double>());
  }
}

/// The other model, or the same one and its adapters with another dtype or cache; nullptr when
/// nothing is compared.
std::unique_ptr<LanguageModel> load_other(const CommandContext& context,
                                          const ScoreArguments& arguments, ModelOptions options,
                                          const ModelFiles& files, ModelCatalog& catalog) {
  if (!arguments.compares()) {
    return nullptr;
  }
  if (!arguments.against_cache.empty()) {
    options.cache = parse_cache(arguments.against_cache, context.components, "--against-cache");
    options.kv_dtype = options.cache.format ? std::string() : options.kv_dtype;
  }
  const std::string& folder = arguments.against.empty() ? arguments.model : arguments.against;
  const ModelFiles& others = catalog.read(folder);
  std::string difference;
  if (files.config.vocab_size != others.config.vocab_size) {
    difference =
        fmt::format("{} and {} entries", files.config.vocab_size, others.config.vocab_size);
  } else if (files.tokenizer != nullptr && others.tokenizer != nullptr) {
    (void)same_vocabulary(*files.tokenizer, *others.tokenizer, difference);
  }
  if (!difference.empty()) {
    throw ConfigError(
        fmt::format("--against {}: has another vocabulary than {} ({}), so their "
                    "distributions cannot be compared",
                    folder, arguments.model, difference));
  }
  if (!arguments.against_dtype.empty()) {
    options.dtype = arguments.against_dtype;
    options.activations.clear();
  }
  const auto adapters =
      arguments.against.empty() ? parse_adapters(arguments.adapters) : std::vector<AdapterChoice>();
  return ModelLoader(options, &catalog).load(folder, adapters);
}

int score(const CommandContext& context, const ScoreArguments& arguments) {
  JsonOutput output(arguments.json, context.out);
  ModelCatalog catalog;
  const ModelFiles& files = catalog.read(arguments.model);
  const std::vector<Passage> passages = read_passages(arguments.file, files);
  ModelOptions options = context.model_options();
  options.suppresses = false;  // a text's tokens all count
  std::optional<Calibration> calibration;
  if (arguments.calibrate) {
    calibration.emplace(arguments, options);
  }
  ModelLoader loader(options, &catalog);
  const auto other = load_other(context, arguments, options, files, catalog);
  const auto model = loader.load(arguments.model, parse_adapters(arguments.adapters));
  const int64_t window = choose_window(arguments.window, *model, other.get());
  const std::vector<PassageWindow> windows = split_passages(passages, window);
  const c10::InferenceMode guard;
  const std::vector<SequenceScore> scores =
      score_all(context, windows, *model, other.get(), calibration ? &*calibration : nullptr);
  if (calibration) {
    calibration->write(model->weights());
  }

  nlohmann::json json = summary_json(passages, scores);
  json["model"] = arguments.model;
  if (!arguments.adapters.empty()) {
    json["adapters"] = arguments.adapters;
    json["fingerprint"] = model->adapters().fingerprint();
  }
  json["file"] = arguments.file;
  json["window"] = window;
  if (json.contains("against")) {
    json["against"]["model"] = arguments.other(context.flags.cache);
  }
  const auto rows = arguments.tokens ? tokens_json(passages, windows, scores) : nlohmann::json();
  if (!output.replaces_text()) {
    print_tokens(context.out, rows, files.tokenizer.get());
    print_summary(context.out, json);
  }
  if (arguments.tokens) {
    json["token_log_probs"] = rows;
  }
  output.write(json_text(json) + "\n");
  output.commit();
  return 0;
}

void add_calibration_options(CLI::App& command, ScoreArguments& arguments) {
  auto* calibrate =
      command
          .add_option("--calibrate", arguments.calibrate,
                      "write levels of q3 for a cache of this model, as its keys and values of the "
                      "text have least error: the file of the cache's key 'codebook'")
          ->option_text("FILE");
  command
      .add_option("--rotation", arguments.rotation,
                  "with --calibrate: the cache's key 'rotation' (none or hadamard)")
      ->check(CLI::IsMember({"none", "hadamard"}))
      ->needs(calibrate);
  command
      .add_flag("--by-magnitude", arguments.by_magnitude,
                "with --calibrate: groups of large numbers weigh more, by their squared scale")
      ->needs(calibrate);
}

}  // namespace

void add_score_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "score", "score a text: perplexity, and how much two models, dtypes or caches differ on it");
  const auto arguments = std::make_shared<ScoreArguments>();
  command->add_option("MODEL", arguments->model, kModelHelp)->required();
  command
      ->add_option("FILE", arguments->file,
                   "a text, or prompts (.jsonl): each turn is scored separately")
      ->required();
  command->add_option("--against", arguments->against,
                      "a second checkpoint, without adapters: KL, top-1 agreement and overlap at "
                      "the same positions");
  command
      ->add_option("--against-dtype", arguments->against_dtype,
                   "dtype of --against, or of a second copy of the model, with float32 "
                   "activations")
      ->check(CLI::IsMember({"stored", "float32", "float64", "bfloat16", "float16", "int8"}));
  command
      ->add_option("--against-cache", arguments->against_cache,
                   "cache of --against, or of a second copy of the model, as --cache names it")
      ->check(not_empty("a cache, such as contiguous"));
  add_calibration_options(*command, *arguments);
  add_adapter_option(*command, arguments->adapters);
  command
      ->add_option("--window", arguments->window,
                   "window length in tokens, the first one included (default: the models' maximum)")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24U));
  command->add_flag("--tokens", arguments->tokens, "also print the log-probability of every token");
  add_json_option(*command, arguments->json, "one JSON object");
  command->footer(
      "Distributions are the raw softmax; logarithms are natural. Texts longer than the window are "
      "split\n"
      "into consecutive windows, each after the text's first token, which is <bos> or, for models\n"
      "without one, the first of the text's own: it is context. Every other token is scored once.\n"
      "Examples:\n"
      "  specdec score models/target speech.txt\n"
      "  specdec score models/target configs/prompts/pair.jsonl --against models/draft\n"
      "  specdec score models/target speech.txt --adapter my_lora --against models/target\n"
      "  specdec score models/target speech.txt --dtype int8 --activations int8\n"
      "    --against-dtype float32\n"
      "  specdec score models/target speech.txt\n"
      "    --against-cache \"{type: paged, format: q4, lossy: true}\"\n"
      "  specdec score models/target speech.txt --calibrate levels.safetensors");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      arguments->against = find_model(arguments->against).string();
      return score(context, *arguments);
    };
  });
}

}  // namespace specdec
