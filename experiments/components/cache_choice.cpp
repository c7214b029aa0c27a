#include "experiments/components/cache_choice.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "experiments/components/model_loading.h"
#include "experiments/config/config_node.h"
#include "kv/kv_cache.h"

namespace specdec {
namespace {

/// Formats and rotations that dtype or device rule out.
void check_format(const ConfigNode& cache, const CacheChoice& choice, const ModelOptions& options) {
  const bool cpu_only = is_for_cpu_only(*choice.format);
  const bool other_device = options.device == "mps" || (cpu_only && options.device != "cpu");
  if (options.dtype == "float64" || other_device) {
    cache.fail("format",
               fmt::format("{} is for float32 activations on the CPU{}, but {}; leave it out, or "
                           "change that",
                           kv_format_name(*choice.format), cpu_only ? "" : " and CUDA",
                           other_device ? "device is " + options.device : "dtype is float64"));
  }
  if (choice.rotation != KvRotation::kNone && options.device != "cpu") {
    cache.fail("rotation", fmt::format("is for the CPU, but device is {}; leave it out, or change "
                                       "that",
                                       options.device));
  }
}

}  // namespace

KvStoreFactory CacheChoice::factory(KvFormat kv_dtype) const {
  const KvFormat chosen = format.value_or(kv_dtype);
  if (!make) {
    return paged_kv(kDefaultPageSize, chosen);
  }
  return [make = make, chosen, rotation = rotation, type = cpu_only](std::vector<LayerKv> layers,
                                                                     const KvStoreOptions& store) {
    if (!type.empty() && !store.device.is_cpu() && !store.device.is_meta()) {  // or measured
      throw Error(fmt::format("a cache of type {} is for the CPU, not for {}: choose another type",
                              type, store.device.str()));
    }
    return make({std::move(layers), store, chosen, rotation});
  };
}

CacheChoice CacheChoice::untraced() const {
  CacheChoice other = *this;
  if (make) {
    other.make = [make = make](const CacheContext& context) {
      CacheContext plain = context;
      plain.traced = false;
      return make(plain);
    };
  }
  return other;
}

void check_cache(const ConfigNode& model, const CacheChoice& choice, const ModelOptions& options) {
  const ConfigNode cache = model.child("cache");
  if (!choice.cpu_only.empty() && options.device != "cpu") {
    cache.fail("type", fmt::format("{} is for the CPU, but device is {}; choose another cache, or "
                                   "device: cpu",
                                   choice.cpu_only, options.device));
  }
  if (!choice.loss.empty() && !choice.format && options.device == "mps") {
    cache.fail("type",
               "is for the CPU and CUDA, but device is mps; choose an exact cache, or device: cpu");
  }
  if (choice.format) {
    check_format(cache, choice, options);
  }
}

std::string cache_yaml(const std::string& text) {
  const bool is_name = text.find_first_of("{}[]:,") == std::string::npos;
  return is_name ? "{type: " + text + "}" : text;
}

}  // namespace specdec
