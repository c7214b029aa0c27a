#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/families/limited_model.h"
#include "core/transformer/heads/mtp_head.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"
#include "experiments/components/device_choice.h"
#include "experiments/components/library_products.h"
#include "experiments/metrics/environment.h"
#include "experiments/run/experiment_config.h"

namespace specdec {
namespace {

constexpr int64_t kMostGraphs = 4096;

/// One of the known types; "auto" for another, which is an error.
std::string read_model_type(const ConfigNode& node) {
  const auto type = node.get<std::string>("type", "auto");
  std::vector<std::string> types = known_model_types();
  types.emplace_back("auto");
  if (std::find(types.begin(), types.end(), type) == types.end()) {
    node.fail("type", fmt::format("unknown type '{}'{}", type, known_names_text(type, types)));
    return "auto";
  }
  return type;
}

/// "gemma" and "llama" are all of their kind; other types are families, as inspect prints them.
bool is_type_of(const std::string& type, const std::string& family) {
  const bool gemma = family.rfind("gemma", 0) == 0;
  return type == "auto" || type == family || (type == "gemma" && gemma) ||
         (type == "gemma3" && family == "gemma3_text") || (type == "llama" && !gemma);
}

/// The profile of the weights, unless `machine_profile: false`; none where it is damaged, which is
/// a mistake.
ProfileDefaults read_profile_defaults(const ConfigNode& node, const std::filesystem::path& weights,
                                      const Components& components) {
  node.ignore("machine_profile");  // known, also where it is not given
  const bool wanted = !node.has("machine_profile") || node.get<bool>("machine_profile", true);
  ProfileDefaults profile;
  if (wanted && !weights.empty() && std::filesystem::exists(machine_profile_file(weights))) {
    const auto device = node.raw("device");
    const Environment machine = read_environment();
    note_error(node, "weights", [&] {
      profile = ProfileDefaults(weights,
                                {.processor = machine.cpu,
                                 .cores = machine.cores,
                                 .device = device == nullptr ? "cpu" : device->text},
                                components);
    });
  }
  return profile;
}

/// What some devices do not do.
void check_device_options(const ConfigNode& node, ModelOptions& options) {
  if (node.get<bool>("verify_consistent", false) && options.device != "cpu") {
    node.fail("verify_consistent",
              fmt::format("is true, but that device '{}' sums every token alike has not been "
                          "checked on a GPU yet: use device: cpu, or leave it out",
                          options.device));
  }
  note_error(node, "prefill_products", [&] {
    options.library_products =
        parse_prefill_products(node.get<std::string>("prefill_products", "exact"), options);
  });
  if (options.library_products && node.get<bool>("verify_consistent", false)) {
    node.fail("prefill_products",
              "library gives prompts other bits than decoding, which verify_consistent forbids: "
              "leave one of them out");
  }
  if (options.memory.bytes > 0 && options.device == "mps") {
    node.fail("memory_limit",
              "reads layers from disk, which device 'mps' does not support: use device: cpu, or "
              "leave it out");
  }
}

/// What the checkpoint cannot do.
void check_of_files(const ConfigNode& node, const ModelOptions& options,
                    const std::filesystem::path& weights, const ModelFiles& files) {
  if (options.include_mtp && !has_mtp(weights)) {
    node.fail("include_mtp",
              "is true, but the checkpoint has no multi-token-prediction modules (tensors 'mtp.*', "
              "or mtp.safetensors); leave it out");
  }
  if (options.max_length > files.config.max_position_embeddings) {
    node.fail("max_length", fmt::format("{} is more than the model's max_position_embeddings ({})",
                                        options.max_length, files.config.max_position_embeddings));
  }
}

/// What loading within the memory limit would refuse.
void check_limit(const ConfigNode& node, const ModelOptions& options, const ModelFiles& files) {
  LoadOptions load;
  try {
    load = load_options(options);
  } catch (const ConfigError&) {
    return;  // noted of their own keys
  }
  try {
    check_model_within(*files.open, load, {options.memory.bytes, options.memory.layer_file});
  } catch (const ConfigError& error) {
    node.fail("memory_limit", error.what());
  } catch (const Error& error) {
    node.fail(node.has("layer_file") ? "layer_file" : "memory_limit", error.what());
  }
}

/// The files of a model; nullptr where they cannot be read.
const ModelFiles* read_files(const ConfigNode& node, ModelCatalog& catalog,
                             const ActiveLayers& active) {
  const ModelFiles* files = nullptr;
  note_error(node, "weights", [&] { files = &catalog.read(active.model); });
  if (files != nullptr) {
    note_error(node, "active_layers", [&] { files = &catalog.read(active.model, active.count); });
  }
  return files;
}

}  // namespace

std::filesystem::path read_model(const ConfigNode& node, const Components& components,
                                 ModelCatalog& catalog, ModelOptions& options,
                                 const ModelFiles*& files, ProfileDefaults& profile) {
  const std::string type = read_model_type(node);
  const auto weights = node.require_model("weights");
  options.adapters = read_adapters(node);
  profile = read_profile_defaults(node, weights, components);
  options.dtype =
      node.get<std::string>("dtype", node.has("dtype") ? std::string() : profile.take_dtype());
  options.activations = node.get<std::string>("activations", "");
  options.cache =
      read_cache(node, RunPlan{.components = components, .models = catalog, .sampling = {}});
  if (node.has("cache")) {
    options.cache.name_errors(
        fmt::format("{}: {}.cache", node.child("cache").place(), node.path()));
  }
  const bool says_format = node.has("kv_dtype") || options.cache.format;
  options.kv_dtype =
      node.get<std::string>("kv_dtype", says_format ? std::string() : profile.take_kv_dtype());
  options.device = node.get<std::string>("device", "cpu");
  options.cuda_graphs = node.get<int64_t>("cuda_graphs", options.cuda_graphs, {0, kMostGraphs});
  options.prefill_graphs =
      node.get<int64_t>("prefill_graphs", options.prefill_graphs, {0, kMostGraphs});
  options.max_length = node.get<int64_t>("max_length", 0, {0, kMaxTokens});
  profile.take_cache(options, components);
  profile.take_threads(options);
  note_error(node, "activations", [&] { check_activations(options); });
  check_formats(node, options);
  check_device_formats(node, {.dtype = options.dtype, .activations = options.activations}, options);
  if (node.has("cache")) {
    check_cache(node, options.cache, options);
  }
  note_error(node, "device", [&] { (void)parse_device(options.device); });
  options.include_mtp = node.get<bool>("include_mtp", false);
  options.memory = read_memory_limit(node);
  options.memory.model = weights;
  check_device_options(node, options);
  options.active_layers = {weights, node.get<int64_t>("active_layers", 0, {0, kMaxTokens})};
  files = nullptr;
  if (weights.empty()) {
    return weights;
  }
  files = read_files(node, catalog, options.active_layers);
  if (files != nullptr && !is_type_of(type, files->config.family)) {
    node.fail("type",
              fmt::format("is {}, but the checkpoint is of the family {}; leave the key out", type,
                          files->config.family));
  }
  if (files != nullptr) {
    note_error(node, "activations", [&] { check_activations(options, *files->open); });
    note_error(node, "prefill_products", [&] { check_library_products(options, *files->open); });
    check_of_files(node, options, weights, *files);
    if (options.memory.bytes > 0 && options.device != "mps") {
      check_limit(node, options, *files);
    }
    check_cache_layers(node, options.cache, files->plan, files->config, options);
  }
  return weights;
}

}  // namespace specdec
