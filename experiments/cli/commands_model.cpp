#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <ostream>

#include "core/error.h"
#include "core/formats/finite_values.h"
#include "core/formats/safetensors.h"
#include "core/hub_cache.h"
#include "core/transformer/reference.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/replaced_file.h"

namespace specdec {
namespace {

struct LogitsArguments {
  std::string model, tokens, out;
  std::vector<std::string> adapters;
  int64_t active_layers = 0;
};

ForwardResult forward_uncached(const TransformerTensors& weights,
                               const std::vector<Token>& tokens) {
  const auto vocab = weights.config.vocab_size;
  for (const Token token : tokens) {
    if (token >= vocab) {
      throw Error(fmt::format("token {} is outside the vocabulary of {} entries", token, vocab));
    }
  }
  const auto ids = at::tensor(tokens, at::kInt).to(at::kLong).to(weights.place.device);
  const auto result = reference_forward(weights, ids.unsqueeze(0));
  return {.logits = result.logits.squeeze(0), .final_hidden = result.hidden.squeeze(0)};
}

/// The cached forward, fed in pieces as a long prompt is.
ForwardResult forward_cached(LanguageModel& model, const std::string& name,
                             const std::vector<Token>& tokens) {
  constexpr size_t kPiece = 256;
  if (static_cast<int64_t>(tokens.size()) > model.max_length()) {
    throw Error(fmt::format("{}: it takes at most {} tokens, but --tokens lists {}. List fewer.",
                            name, model.max_length(), tokens.size()));
  }
  std::vector<Tensor> logits;
  std::vector<Tensor> hidden;
  for (size_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const size_t size = std::min(kPiece, tokens.size() - begin);
    const std::vector<Token> piece(tokens.begin() + static_cast<int64_t>(begin),
                                   tokens.begin() + static_cast<int64_t>(begin + size));
    auto result = model.forward({.tokens = at::tensor(piece, at::kInt)}, {.hidden = Hidden::kAll});
    model.commit(chain_path(static_cast<int64_t>(size)));
    logits.push_back(std::move(result.logits));
    hidden.push_back(std::move(result.final_hidden));
  }
  return {.logits = at::cat(logits), .final_hidden = at::cat(hidden)};
}

TensorToWrite to_write(const std::string& name, const Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return {name, DType::kF32, tensor.sizes().vec(), {data, static_cast<size_t>(tensor.nbytes())}};
}

/// Numbers [T, size] that are written are numbers.
void check_finite(const Tensor& values, const std::string& what, const std::string& model) {
  const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
  if (const auto found =
          first_not_finite(DType::kF32, {bytes, static_cast<size_t>(values.nbytes())})) {
    throw Error(fmt::format(
        "{}: {} at position {} hold {} (number {} of {}): the model's numbers are too large for "
        "its dtype. Try --dtype float32 or float64; nothing was written.",
        model, what, found->value / values.size(1), found->is_nan ? "NaN" : "infinity",
        found->value % values.size(1), values.size(1)));
  }
}

int logits(const CommandContext& context, const LogitsArguments& arguments) {
  const auto tokens = parse_token_list(arguments.tokens);
  if (std::filesystem::path(arguments.out).extension() != ".safetensors") {
    throw ConfigError(fmt::format("--out '{}': should end in .safetensors", arguments.out));
  }
  keep_other_file("--out", arguments.out, "logits",
                  [&] { return holds_tensor(arguments.out, "logits"); });
  (void)read_model_files(arguments.model);
  ModelLoader loader(context.model_options({arguments.model, arguments.active_layers}));
  const auto weights = loader.weights(arguments.model);
  const auto adapters = parse_adapters(arguments.adapters);
  if (weights->config.bidirectional && !adapters.empty()) {
    throw ConfigError(fmt::format(
        "--adapter: {} is an encoder (bidirectional attention), whose forward takes no adapters",
        arguments.model));
  }
  const auto model =
      weights->config.bidirectional ? nullptr : loader.load(arguments.model, adapters);
  const c10::InferenceMode guard;
  const auto result = model == nullptr ? forward_uncached(unpack(*weights), tokens)
                                       : forward_cached(*model, arguments.model, tokens);
  const auto plain = [](const Tensor& tensor) {
    return tensor.to(at::kCPU).to(at::kFloat).contiguous();
  };
  const Tensor all_logits = plain(result.logits);
  const Tensor hidden = plain(result.final_hidden);
  check_finite(hidden, "hidden states", arguments.model);
  check_finite(all_logits, "logits", arguments.model);
  const std::vector<TensorToWrite> tensors = {to_write("logits", all_logits),
                                              to_write("hidden", hidden)};
  const auto fingerprint =
      model == nullptr ? weights->fingerprint : model->adapters().fingerprint();
  write_safetensors(arguments.out, tensors, {{"fingerprint", fingerprint}});
  if (!context.flags.quiet) {
    context.err << fmt::format("{}: logits [{}, {}], hidden [{}, {}]\n", arguments.out,
                               all_logits.size(0), all_logits.size(1), hidden.size(0),
                               hidden.size(1));
  }
  return 0;
}

}  // namespace

void refuse_model_flags(const GlobalFlags& flags, const std::string& why) {
  const std::pair<const char*, const std::string&> given[] = {{"--dtype", flags.dtype},
                                                              {"--activations", flags.activations},
                                                              {"--kv-dtype", flags.kv_dtype},
                                                              {"--cache", flags.cache}};
  for (const auto& [name, value] : given) {
    if (!value.empty()) {
      throw ConfigError(fmt::format("{}: {}", name, why));
    }
  }
}

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

void add_adapter_option(CLI::App& command, std::vector<std::string>& adapters) {
  command
      .add_option(
          "--adapter", adapters,
          "apply a LoRA folder to the model, as strongly as the scale says (default 1); may "
          "be repeated")
      ->type_name("DIR[:SCALE]")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

std::function<std::string(const std::string&)> not_empty(const std::string& what) {
  return [what](const std::string& text) {
    return text.empty() ? "is empty: name " + what + ", or leave it out" : std::string();
  };
}

void add_active_layers_option(CLI::App& command, int64_t& layers) {
  command
      .add_option("--active-layers", layers,
                  "run the model with so many of its layers, the first ones; 0 = all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20U));
}

std::vector<AdapterChoice> parse_adapters(const std::vector<std::string>& texts) {
  std::vector<AdapterChoice> adapters;
  for (const std::string& text : texts) {
    adapters.push_back(parse_adapter(text));
  }
  return adapters;
}

void add_logits_command(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("logits", "write the logits and hidden states of given tokens to a file");
  const auto arguments = std::make_shared<LogitsArguments>();
  command->add_option("MODEL", arguments->model, kModelHelp)->required();
  command->add_option("--tokens", arguments->tokens, "token ids, such as 2,5,7")->required();
  command->add_option("--out", arguments->out, "a .safetensors file, overwritten")->required();
  add_adapter_option(*command, arguments->adapters);
  add_active_layers_option(*command, arguments->active_layers);
  command->footer(
      "The file contains `logits` [T, vocab] and `hidden` [T, hidden] (after the final norm) in "
      "float32,\n"
      "to compare with other implementations. Example:\n"
      "  specdec logits models/target --tokens 2,5,7 --out logits.safetensors --dtype float32");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      return logits(context, *arguments);
    };
  });
}

}  // namespace specdec
