#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/formats/safetensors.h"
#include "core/transformer/plan.h"
#include "core/transformer/reference.h"
#include "experiments/cli/commands.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

// ---- logits ----

struct LogitsArguments {
  std::string model, tokens, out;
};

ForwardResult forward_uncached(const TransformerWeights& weights,
                               const std::vector<Token>& tokens) {
  const auto vocab = weights.config.vocab_size;
  for (const Token token : tokens) {
    if (token >= vocab) {
      throw Error(fmt::format("token {} is outside the vocabulary of {} entries", token, vocab));
    }
  }
  const auto ids = at::tensor(tokens, at::kInt).to(at::kLong).to(weights.embedding.device());
  const auto result = reference_forward(weights, ids.unsqueeze(0));
  return {result.logits.squeeze(0), result.hidden.squeeze(0), {}};
}

/// The cached forward, fed in pieces as a long prompt is.
ForwardResult forward_cached(LanguageModel& model, const std::vector<Token>& tokens) {
  constexpr size_t kPiece = 256;
  if (static_cast<int64_t>(tokens.size()) > model.max_length()) {
    throw Error(fmt::format("{} tokens are more than the model takes ({})", tokens.size(),
                            model.max_length()));
  }
  std::vector<Tensor> logits;
  std::vector<Tensor> hidden;
  for (size_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const size_t size = std::min(kPiece, tokens.size() - begin);
    const std::vector<Token> piece(tokens.begin() + static_cast<int64_t>(begin),
                                   tokens.begin() + static_cast<int64_t>(begin + size));
    auto result = model.forward({.tokens = at::tensor(piece, at::kInt), .rows = {}, .parents = {}});
    model.commit(chain_path(static_cast<int64_t>(size)));
    logits.push_back(std::move(result.logits));
    hidden.push_back(std::move(result.final_hidden));
  }
  return {at::cat(logits), at::cat(hidden), {}};
}

TensorToWrite to_write(const std::string& name, const Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return {name, DType::kF32, tensor.sizes().vec(), {data, static_cast<size_t>(tensor.nbytes())}};
}

int logits(const CommandContext& context, const LogitsArguments& arguments) {
  const auto tokens = parse_token_list(arguments.tokens);
  (void)read_model_files(arguments.model);
  ModelLoader loader(context.model_options());
  const auto weights = loader.weights(arguments.model);
  const c10::InferenceMode guard;
  const auto result = weights->config.bidirectional
                          ? forward_uncached(*weights, tokens)
                          : forward_cached(*loader.load(arguments.model), tokens);
  const auto plain = [](const Tensor& tensor) {
    return tensor.to(at::kCPU).to(at::kFloat).contiguous();
  };
  const Tensor all_logits = plain(result.logits);
  const Tensor hidden = plain(result.final_hidden);
  const std::vector<TensorToWrite> tensors = {to_write("logits", all_logits),
                                              to_write("hidden", hidden)};
  write_safetensors(arguments.out, tensors, {{"fingerprint", weights->fingerprint}});
  if (!context.flags.quiet) {
    context.err << fmt::format("{}: logits [{}, {}], hidden [{}, {}]\n", arguments.out,
                               all_logits.size(0), all_logits.size(1), hidden.size(0),
                               hidden.size(1));
  }
  return 0;
}

// ---- inspect ----

nlohmann::json weights_json(const std::filesystem::path& folder) {
  const CheckpointTensors tensors(folder);
  int64_t parameters = 0;
  int64_t bytes = 0;
  std::set<std::string> dtypes;
  for (const auto* entry : tensors.tensors()) {
    bytes += static_cast<int64_t>(entry->bytes.size());
    parameters += static_cast<int64_t>(entry->bytes.size()) / dtype_bytes(entry->dtype);
    dtypes.insert(std::string(dtype_name(entry->dtype)));
  }
  return {{"tensors", tensors.tensors().size()},
          {"parameters", parameters},
          {"bytes", bytes},
          {"dtypes", dtypes}};
}

nlohmann::json layer_json(const LayerPlan& layer) {
  return {{"heads", layer.heads},
          {"kv_heads", layer.kv_heads},
          {"head_dim", layer.head_dim},
          {"intermediate_size", layer.intermediate_size},
          {"window", layer.window},
          {"query_scale", layer.query_scale},
          {"soft_cap", layer.soft_cap},
          {"rope_theta", layer.rope.theta},
          {"rope_factor", layer.rope.factor},
          {"qk_norm", layer.qk_norm},
          {"post_norms", layer.post_norms}};
}

nlohmann::json inspect_json(const ModelFiles& files) {
  const auto& config = files.config;
  auto layers = nlohmann::json::array();
  for (const auto& layer : files.plan) {
    layers.push_back(layer_json(layer));
  }
  nlohmann::json tokenizer;
  if (files.tokenizer != nullptr) {
    const auto id = [](const std::optional<Token>& token) {
      return token ? nlohmann::json(*token) : nlohmann::json();
    };
    tokenizer = {{"pieces", files.tokenizer->vocab_size()},
                 {"bos", id(files.tokenizer->bos())},
                 {"eos", id(files.tokenizer->eos())}};
  }
  return {{"folder", files.folder.string()},
          {"family", config.family},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"num_layers", config.num_layers},
          {"max_position_embeddings", config.max_position_embeddings},
          {"tied_head", config.tie_word_embeddings},
          {"final_soft_cap", config.final_soft_cap},
          {"bidirectional", config.bidirectional},
          {"end_ids", config.end_ids},
          {"weights", weights_json(files.folder)},
          {"tokenizer", tokenizer},
          {"layers", layers}};
}

void print_inspection(std::ostream& out, const nlohmann::json& json) {
  for (const auto& [key, value] : json.items()) {
    if (key == "layers" || key == "weights" || key == "tokenizer") {
      continue;
    }
    out << fmt::format("{:<24} {}\n", key,
                       value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (const auto& [key, value] : json["weights"].items()) {
    out << fmt::format("{:<24} {}\n", "weights: " + key, value.dump());
  }
  out << fmt::format("{:<24} {}\n", "tokenizer",
                     json["tokenizer"].is_null() ? "none" : json["tokenizer"].dump());
  out << fmt::format("\n{:>5} {:>6} {:>8} {:>9} {:>6} {:>7} {:>10} {:>8} {:>9}\n", "layer", "heads",
                     "kv_heads", "head_dim", "mlp", "window", "rope theta", "soft cap", "extras");
  size_t index = 0;
  for (const auto& layer : json["layers"]) {
    const auto window = layer["window"].get<int64_t>();
    const bool qk_norm = layer["qk_norm"].get<bool>();
    out << fmt::format("{:>5} {:>6} {:>8} {:>9} {:>6} {:>7} {:>10} {:>8} {:>9}\n", index++,
                       layer["heads"].dump(), layer["kv_heads"].dump(), layer["head_dim"].dump(),
                       layer["intermediate_size"].dump(),
                       window == 0 ? "full" : std::to_string(window), layer["rope_theta"].dump(),
                       layer["soft_cap"].dump(),
                       qk_norm                           ? "qk norm"
                       : layer["post_norms"].get<bool>() ? "post norm"
                                                         : "");
  }
}

int inspect(const CommandContext& context, const std::string& model, const JsonOption& option) {
  JsonOutput json(option, context.out);
  const auto inspection = inspect_json(read_model_files(model));
  json.write(json_text(inspection, 2) + "\n");
  json.commit();
  if (!json.replaces_text()) {
    print_inspection(context.out, inspection);
  }
  return 0;
}

}  // namespace

std::vector<Token> parse_token_list(const std::string& text) {
  std::vector<Token> tokens;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    size_t first = begin;
    while (first < end && text[first] == ' ') {
      ++first;
    }
    Token token = 0;
    const auto [parsed, failure] = std::from_chars(text.data() + first, text.data() + end, token);
    if (failure != std::errc() || parsed != text.data() + end || token < 0) {
      throw ConfigError(
          fmt::format("'{}' is not a list of whole numbers of at least 0, such as "
                      "2,5,7 (at '{}')",
                      text, text.substr(begin, end - begin)));
    }
    tokens.push_back(token);
    begin = end + 1;
  }
  return tokens;
}

void add_logits_command(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("logits", "write the logits and hidden states of given tokens to a file");
  const auto arguments = std::make_shared<LogitsArguments>();
  command->add_option("MODEL", arguments->model, "a checkpoint folder")->required();
  command->add_option("--tokens", arguments->tokens, "token ids, such as 2,5,7")->required();
  command->add_option("--out", arguments->out, "a .safetensors file, overwritten")->required();
  command->footer(
      "The file contains `logits` [T, vocab] and `hidden` [T, hidden] (after the final norm) in "
      "float32,\n"
      "to compare with other implementations. Example:\n"
      "  specdec logits models/target --tokens 2,5,7 --out logits.safetensors --dtype float32");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return logits(context, *arguments); };
  });
}

void add_inspect_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("inspect", "describe a checkpoint: config, layers, sizes");
  const auto model = std::make_shared<std::string>();
  const auto json = std::make_shared<JsonOption>();
  command->add_option("MODEL", *model, "a checkpoint folder")->required();
  add_json_option(*command, *json, "one JSON object");
  command->footer("Loads no weights. Example:\n  specdec inspect models/target");
  command->callback([&context, model, json] {
    context.action = [&context, model, json] { return inspect(context, *model, *json); };
  });
}

}  // namespace specdec
