#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/families/model_size.h"
#include "core/formats/json_text.h"
#include "core/hub_cache.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/heads/mtp_head.h"
#include "core/transformer/plan.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/head_inspection.h"
#include "experiments/components/cache_checks.h"
#include "experiments/components/cache_room.h"
#include "experiments/components/memory_needs.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

/// What a dtype of a file is called where matrices keep it.
std::string format_in_memory(DType dtype) {
  constexpr std::pair<DType, const char*> kNames[] = {{DType::kF64, "float64"},
                                                      {DType::kF32, "float32"},
                                                      {DType::kF16, "float16"},
                                                      {DType::kBF16, "bfloat16"},
                                                      {DType::kQ80, "int8"}};
  for (const auto& [known, name] : kNames) {
    if (known == dtype) {
      return name;
    }
  }
  return std::string(dtype_name(dtype));
}

/// The bytes in memory of the matrices by format, as stored and converted to other dtypes.
/// Measuring checks that the tensors are those that the model asks for.
nlohmann::json model_weights_json(const OpenModel& model) {
  nlohmann::json json = weights_json(*model.tensors);
  const auto total = [&](at::ScalarType dtype) {
    int64_t bytes = 0;
    for (const auto& [format, size] : measure_weights(model, {.dtype = dtype})) {
      bytes += size;
    }
    return bytes;
  };
  json["memory"] = {{"stored", measure_weights(model)},
                    {"float32", total(at::kFloat)},
                    {"bfloat16", total(at::kBFloat16)},
                    {"int8", total(at::kChar)}};
  if (model.gguf != nullptr) {
    json["converted"] = nlohmann::json::object();
    for (const TensorEntry& entry : model.gguf->tensors()) {
      const std::string own = format_in_memory(entry.dtype);
      if (entry.shape.size() == 2 && !json["memory"]["stored"].contains(own)) {
        json["converted"][std::string(dtype_name(entry.dtype))] = "float32";
      }
    }
  }
  return json;
}

void print_values(std::ostream& out, const nlohmann::json& json) {
  for (const auto& [key, value] : json.items()) {
    if (key != "layers" && key != "weights" && key != "tokenizer" && key != "memory_needed") {
      out << fmt::format("{:<24} {}\n", key,
                         value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  for (const auto& [key, value] : json["weights"].items()) {
    out << fmt::format("{:<24} {}\n", "weights: " + key, value.dump());
  }
}

// ---- models ----

nlohmann::json memory_json(const MemoryNeeds& needs) {
  return {{"context", needs.context},
          {"weights", needs.matrices + needs.vectors},
          {"mapped", needs.mapped},
          {"cache", needs.cache()},
          {"cache_of_sliding_layers", needs.sliding_cache},
          {"cache_of_full_layers", needs.full_cache},
          {"states_of_recurrent_layers", needs.states},
          {"cache_on_disk", needs.cache_on_disk},
          {"pinned_cache", needs.pinned_cache},
          {"activations", needs.activations},
          {"rotations", needs.rotations},
          {"results", needs.results},
          {"total", needs.total()}};
}

void print_memory(std::ostream& out, const nlohmann::json& needs) {
  for (const auto& [key, value] : needs.items()) {
    if (key != "context" && key != "total") {
      out << fmt::format("{:<24} {}\n", "memory: " + key, value.dump());
    }
  }
  const auto total = needs["total"].get<int64_t>();
  out << fmt::format("{:<24} {} ({:.2f} GiB) at {} tokens\n", "memory: total", total,
                     static_cast<double>(total) / (1 << 30), needs["context"].get<int64_t>());
}

/// What keeps a checkpoint's multi-token-prediction modules from being drafters; the model itself
/// can be used without them.
std::vector<std::string> mtp_notes(const ModelFiles& files, int64_t modules) {
  try {
    if (modules > 0) {
      (void)load_mtp_head(files.folder, unloaded_target(files.config, files.plan));
    }
  } catch (const WeightsError& error) {
    return {fmt::format("its mtp modules cannot draft: {}", error.what())};
  }
  return {};
}

nlohmann::json inspect_json(const ModelFiles& files, const MemoryNeeds& needs) {
  const auto& config = files.config;
  auto layers = nlohmann::json::array();
  for (const auto& layer : files.plan) {
    layers.push_back(layer_json(layer));
  }
  const int64_t modules = count_mtp_modules(files.folder);
  std::vector<std::string> notes = files.notes;
  for (std::string& note : mtp_notes(files, modules)) {
    notes.push_back(std::move(note));
  }
  nlohmann::json tokenizer;
  if (files.tokenizer != nullptr) {
    const auto id = [](const std::optional<Token>& token) {
      return token ? nlohmann::json(*token) : nlohmann::json();
    };
    tokenizer = {{"pieces", files.tokenizer->vocab_size()},
                 {"bos", id(files.tokenizer->bos())},
                 {"eos", id(files.tokenizer->eos())},
                 {"chat_template", !files.tokenizer->chat_template().empty()}};
  } else if (!files.tokenizer_error.empty()) {
    tokenizer = {{"error", files.tokenizer_error}};
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
          {"suppressed_ids", config.suppressed_ids},
          {"cache_bytes_per_token", needs.cache_per_token},
          {"memory_needed", memory_json(needs)},
          {"mtp_modules", modules},
          {"weights", model_weights_json(*files.open)},
          {"tokenizer", tokenizer},
          {"notes", notes},
          {"layers", layers}};
}

/// What a layer has beside attention and MLP, as the table shows it.
std::string extras_text(const nlohmann::json& layer) {
  std::vector<std::string> extras;
  const auto add = [&](bool has, const std::string& text) {
    if (has) {
      extras.push_back(text);
    }
  };
  const auto number = [&layer](const char* key) { return layer[key].get<int64_t>(); };
  add(layer["qk_norm"].get<bool>(), "qk norm");
  add(layer["qkv_bias"].get<bool>() || layer["output_bias"].get<bool>() ||
          layer["mlp_bias"].get<bool>(),
      "biases");
  add(extras.empty() && layer["post_norms"].get<bool>(), "post norm");
  add(number("kv_source") >= 0, fmt::format("keys of layer {}", number("kv_source")));
  add(layer["raw_key_values"].get<bool>(), "K = V");
  add(number("experts") > 0, fmt::format("{} of {} experts of {}", number("chosen_experts"),
                                         number("experts"), number("expert_size")));
  add(number("per_layer_size") > 0, fmt::format("own inputs of {}", number("per_layer_size")));
  add(number("convolution_width") > 0,
      fmt::format("recurrent, convolution of {}", number("convolution_width")));
  add(number("streams") > 0, fmt::format("{} streams", number("streams")));
  return fmt::format("{}", fmt::join(extras, ", "));
}

std::string tokenizer_text(const nlohmann::json& tokenizer) {
  if (tokenizer.is_null()) {
    return "none";
  }
  return tokenizer.contains("error") ? "not usable: " + tokenizer["error"].get<std::string>()
                                     : tokenizer.dump();
}

void print_inspection(std::ostream& out, const nlohmann::json& json) {
  print_values(out, json);
  print_memory(out, json["memory_needed"]);
  out << fmt::format("{:<24} {}\n", "tokenizer", tokenizer_text(json["tokenizer"]));
  out << fmt::format("\n{:>5} {:>6} {:>8} {:>9} {:>6} {:>7} {:>10} {:>8}  {}\n", "layer", "heads",
                     "kv_heads", "head_dim", "mlp", "window", "rope theta", "soft cap", "extras");
  size_t index = 0;
  for (const auto& layer : json["layers"]) {
    const auto window = layer["window"].get<int64_t>();
    out << fmt::format("{:>5} {:>6} {:>8} {:>9} {:>6} {:>7} {:>10} {:>8}  {}\n", index++,
                       layer["heads"].dump(), layer["kv_heads"].dump(), layer["head_dim"].dump(),
                       layer["intermediate_size"].dump(),
                       layer["convolution_width"] != 0 ? "none"
                       : window == 0                   ? "full"
                                                       : std::to_string(window),
                       layer["rope_theta"].dump(), layer["soft_cap"].dump(), extras_text(layer));
  }
}

nlohmann::json model_json(const CommandContext& context, const std::string& model,
                          std::optional<int64_t> length) {
  const ModelFiles files = read_model_files(model);
  const ModelOptions options = context.model_options();
  nlohmann::json json = inspect_json(
      files, memory_needs(files, options, length.value_or(max_length_of(options, files.config))));
  if (std::string beside = tiers_beside_target(options.cache, options.device); !beside.empty()) {
    json["notes"].push_back(std::move(beside));
  }
  if (std::string lacking = lacking_disk(options.cache); !lacking.empty()) {
    json["notes"].push_back(std::move(lacking));
  }
  return json;
}

struct InspectArguments {
  std::string model;
  std::optional<int64_t> context;
  JsonOption json;
};

int inspect(const CommandContext& context, const InspectArguments& arguments) {
  const std::string& model = arguments.model;
  JsonOutput json(arguments.json, context.out);
  const std::string kind = inspected_head(model);
  if (!kind.empty() && arguments.context) {
    throw ConfigError(
        fmt::format("--context: {} holds a head, which has no context of its own", model));
  }
  if (!kind.empty()) {
    refuse_model_flags(
        context.flags,
        fmt::format("{} holds a head, whose files alone are described; leave it out", model));
  }
  const auto inspection =
      kind.empty() ? model_json(context, model, arguments.context) : inspect_head(model, kind);
  json.write(json_text(inspection, 2) + "\n");
  json.commit();
  if (!json.replaces_text()) {
    kind.empty() ? print_inspection(context.out, inspection)
                 : print_values(context.out, inspection);
  }
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("inspect", "describe a checkpoint or a head: config, layers, sizes");
  const auto arguments = std::make_shared<InspectArguments>();
  command->add_option("MODEL", arguments->model, kModelHelp + std::string(", or a head's folder"))
      ->required();
  command->add_option("--context", arguments->context,
                      "tokens of a prompt for which the memory is stated (the longest that 'run' "
                      "takes by default)");
  add_json_option(*command, arguments->json, "one JSON object");
  command->footer(
      "Loads no weights, but checks that the files hold whole tensors of the names, shapes and\n"
      "types that the model needs. \"memory\" is what the matrices take with dtype stored, by "
      "format\n"
      "in memory, and with other dtypes; \"converted\" names the block formats of a GGUF file "
      "that\n"
      "are not kept. Of a head: its type, which is that of the drafter that takes it, and the "
      "target\n"
      "that it fits. \"memory_needed\" is what the model takes with --dtype and --kv-dtype once "
      "a\n"
      "prompt of so many tokens is in its cache; \"mapped\" stays in the file and is in no sum. "
      "Examples:\n"
      "  specdec inspect models/target\n"
      "  specdec --kv-dtype bfloat16 inspect models/target --context 2048\n"
      "  specdec inspect models/heads/eagle");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      return inspect(context, *arguments);
    };
  });
}

}  // namespace specdec
