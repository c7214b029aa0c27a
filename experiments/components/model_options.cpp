#include "experiments/components/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/families/model_size.h"
#include "experiments/components/device_choice.h"

namespace specdec {
namespace {

/// Default limit of a model's context: caches of 128k tokens would take
/// memory that experiments do not need.
constexpr int64_t kDefaultMaxLength = 8192;

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {{"float32", at::kFloat},
                                                              {"float64", at::kDouble},
                                                              {"bfloat16", at::kBFloat16},
                                                              {"float16", at::kHalf},
                                                              {"int8", at::kChar}};

}  // namespace

std::string loading_key(const ModelOptions& options) {
  // All members by name: one that is added does not compile before it has its place here.
  const auto& [dtype, activations, kv_dtype, device, max_length, cache, include_mtp, suppresses,
               threads, prefill_threads, cuda_graphs, prefill_graphs, library_products,
               thread_reason, random_weights, adapters, memory, active_layers] = options;
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", dtype, activations,
                     kv_dtype, device, max_length, cache.yaml, suppresses, cuda_graphs,
                     prefill_graphs, library_products, random_weights, memory.model.string(),
                     memory.bytes, memory.layer_file.string(), active_layers.model.string(),
                     active_layers.count);
}

int64_t max_length_of(const ModelOptions& options, const TransformerConfig& config) {
  const int64_t wanted = options.max_length == 0 ? kDefaultMaxLength : options.max_length;
  return std::min(config.max_position_embeddings, wanted);
}

std::optional<at::ScalarType> parse_dtype(const std::string& name) {
  if (name.empty() || name == "stored") {
    return std::nullopt;
  }
  for (const auto& [known, type] : kDtypes) {
    if (name == known) {
      return type;
    }
  }
  throw ConfigError(fmt::format(
      "unknown dtype '{}'; known: stored, float32, float64, bfloat16, float16, int8", name));
}

ActivationFormat parse_activations(const std::string& name) {
  if (!name.empty() && name != "float32" && name != "int8") {
    throw ConfigError(fmt::format("unknown activations '{}'; known: float32, int8", name));
  }
  return name == "int8" ? ActivationFormat::kInt8 : ActivationFormat::kFloat32;
}

void check_activations(const ModelOptions& options) {
  const bool plain = options.dtype == "float32" || options.dtype == "float64" ||
                     options.dtype == "bfloat16" || options.dtype == "float16";
  if (parse_activations(options.activations) == ActivationFormat::kInt8 && plain) {
    throw ConfigError(
        "int8 needs weights in blocks, which are multiplied as integers: set dtype: int8, or "
        "dtype: stored for blocks of integers (GGUF's Q4_0 to Q8_0 and Q2_K to Q6_K, w4a16); or "
        "leave activations out");
  }
}

void check_activations(const ModelOptions& options, const OpenModel& model) {
  const bool stored = options.dtype.empty() || options.dtype == "stored";
  if (stored && options.activations == "int8") {
    (void)measure_weights(
        model, {.dtype = std::nullopt, .place = {}, .activations = ActivationFormat::kInt8});
  }
}

void check_activations_of(const std::filesystem::path& folder, const ModelOptions& options,
                          const OpenModel& model) {
  try {
    check_activations(options);
    check_activations(options, model);
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("{}: activations (--activations): {}", folder.string(), error.what()));
  }
}

void check_device(const ModelOptions& options) {
  if (options.device == "cpu") {
    return;
  }
  if (options.dtype == "float64") {
    throw ConfigError(fmt::format(
        "dtype float64 runs on the CPU only, not on '{}'; use dtype: float32, or device: cpu",
        options.device));
  }
  if (options.activations == "int8") {
    throw ConfigError(
        fmt::format("int8 activations run on the CPU only, not on '{}'; leave activations out, or "
                    "use device: cpu",
                    options.device));
  }
}

bool parse_prefill_products(const std::string& name, const ModelOptions& options) {
  if (!name.empty() && name != "exact" && name != "library") {
    throw ConfigError(fmt::format("unknown products '{}'; known: exact, library", name));
  }
  if (name != "library") {
    return false;
  }
  if (options.device.rfind("cuda", 0) != 0) {
    throw ConfigError(fmt::format(
        "library is cuBLAS, for device: cuda, not '{}': use that, or exact", options.device));
  }
  if (options.dtype == "float32") {
    throw ConfigError("library multiplies no float32: leave out dtype: float32, or use exact");
  }
  return true;
}

KvFormat parse_kv_dtype(const std::string& name) {
  if (name == "bfloat16") {
    return KvFormat::kBFloat16;
  }
  if (!name.empty() && name != "float32") {
    throw ConfigError(fmt::format("unknown kv_dtype '{}'; known: float32, bfloat16", name));
  }
  return KvFormat::kNative;
}

KvFormat kv_format_of(const ModelOptions& options) {
  const std::optional<KvFormat>& format = options.cache.format;
  if (format && !options.kv_dtype.empty()) {
    throw ConfigError(fmt::format(
        "kv_dtype {} and the cache's format {} are two formats of the same keys and values: leave "
        "one of them out",
        options.kv_dtype, kv_format_name(*format)));
  }
  return format ? *format : parse_kv_dtype(options.kv_dtype);
}

LoadOptions load_options(const ModelOptions& options) {
  return {.dtype = parse_dtype(options.dtype),
          .place = placement_on(parse_device(options.device)),
          .activations = parse_activations(options.activations)};
}

}  // namespace specdec
