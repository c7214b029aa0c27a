#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/kv_store.h"

namespace specdec {

struct Components;
struct RunPlan;
class ConfigNode;

/// What a cache is made for: the layers of a model, and the type of its keys and values.
struct CacheContext {
  std::vector<LayerKv> layers;
  KvStoreOptions store;
  KvFormat format = KvFormat::kNative;
};

/// The type and options of a model's key/value cache.
struct CacheChoice {
  std::string yaml = {};  ///< with all options; "" = none was chosen: `paged`
  std::function<std::unique_ptr<KvStore>(const CacheContext&)> make = {};

  /// Makes the caches of models whose keys and values have this type.
  KvStoreFactory factory(KvFormat format) const;
};

/// The key `cache` of a model, a map with a type.
CacheChoice read_cache(const ConfigNode& model, const RunPlan& plan);
/// The value of --cache as YAML: a type's name alone is {type: NAME}.
std::string cache_yaml(const std::string& text);
/// Reads the value of --cache; "" chooses none. Throws ConfigError with all mistakes.
CacheChoice parse_cache(const std::string& text, const Components& components);

}  // namespace specdec
