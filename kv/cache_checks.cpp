#include "kv/cache_checks.h"

#include <fmt/format.h>

#include <limits>

#include "core/error.h"
#include "core/kernels/metal/metal_formats.h"

namespace specdec {
namespace {

void check_layers(const std::vector<LayerKv>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerKv& layer = layers[i];
    SPECDEC_CHECK(layer.kv_heads > 0 && layer.head_dim > 0 && layer.window >= 0 &&
                      (layer.sink == 0 || (layer.sink > 0 && layer.window > 0)),
                  "cache: layer {} has {} kv heads of {} and window {}", i, layer.kv_heads,
                  layer.head_dim, layer.window);
    if (layer.source_layer < 0) {
      continue;
    }
    SPECDEC_CHECK(layer.source_layer < static_cast<int64_t>(i),
                  "cache: layer {} reads layer {}, which is not an earlier one", i,
                  layer.source_layer);
    const LayerKv& source = layers[static_cast<size_t>(layer.source_layer)];
    SPECDEC_CHECK(source.source_layer < 0 && source.kv_heads == layer.kv_heads &&
                      source.head_dim == layer.head_dim,
                  "cache: layer {} cannot read layer {}: other geometry, or it has no own keys", i,
                  layer.source_layer);
  }
}

void check_format(const KvCacheOptions& options) {
  if (options.format == KvFormat::kNative) {
    return;
  }
  const char* name = kv_format_name(options.format);
  const bool half = options.format == KvFormat::kBFloat16;  // by its own key
  if (options.dtype != at::kFloat) {
    throw Error(
        fmt::format("a key/value cache in {} needs float32 activations, not float64; leave "
                    "{} out, or choose dtype: float32",
                    name, half ? "kv_dtype" : "the cache's format"));
  }
  if (options.device.is_mps() && !mps::metal_has(options.format)) {
    throw Error(
        fmt::format("a key/value cache in {} is for the CPU and CUDA; on {} there are float16, "
                    "fp8_e4m3, q8, q4 and hierarchical ones",
                    name, options.device.str()));
  }
}

/// Checks that levels are of this format and geometry.
void check_levels(const std::vector<LayerKv>& layers, const KvCacheOptions& options) {
  for (const LayerKv& layer : layers) {
    if (!layer.levels.defined()) {
      continue;
    }
    SPECDEC_CHECK((options.format == KvFormat::kQ3 || options.format == KvFormat::kNative) &&
                      layer.levels.is_contiguous() && layer.levels.is_cpu() &&
                      layer.levels.scalar_type() == at::kFloat &&
                      layer.levels.sizes() == at::IntArrayRef({2, layer.kv_heads, kQ3Levels}),
                  "cache: levels should be [2, {}, {}] float32, of q3, not {}", layer.kv_heads,
                  kQ3Levels, kv_format_name(options.format));
  }
}

/// Throws Error for a head that the format cannot hold.
void check_head_dims(const std::vector<LayerKv>& layers, KvFormat format) {
  for (const LayerKv& layer : layers) {
    if (layer.head_dim % kv_multiple(format) != 0) {
      throw Error(fmt::format(
          "a key/value cache in {} takes heads of a multiple of {} dimensions, and the model has "
          "heads of {}: choose another format",
          kv_format_name(format), kv_multiple(format), layer.head_dim));
    }
  }
}

void check_exact_recent(const KvCacheOptions& options) {
  SPECDEC_CHECK(options.exact_recent >= 0, "cache: exact_recent {}", options.exact_recent);
  if (options.exact_recent == 0) {
    return;
  }
  if (options.format == KvFormat::kNative) {
    throw Error(
        "exact_recent is for a cache whose format rounds keys and values, and this one keeps them "
        "as they are: leave exact_recent out, or give it a format");
  }
  if (options.device.is_mps()) {
    throw Error(
        "a cache with exact_recent is for the CPU and CUDA, not for mps: leave exact_recent out, "
        "or "
        "choose device: cpu");
  }
  SPECDEC_CHECK(options.memory_bytes == 0, "cache: memory_bytes with exact_recent");
}

/// Throws Error for what a format that rounds keys in groups of tokens cannot have.
void check_key_groups(const std::vector<LayerKv>& layers, const KvCacheOptions& options) {
  const int64_t group = kv_key_group(options.format);
  if (group == 1) {
    return;
  }
  const char* name = kv_format_name(options.format);
  if (options.memory_bytes > 0) {
    throw Error(fmt::format(
        "a key/value cache in {} holds recent tokens as they are, which one of type tiered does "
        "not: choose another format, or type: paged",
        name));
  }
  if (options.page_size % group != 0) {
    throw Error(fmt::format(
        "a key/value cache in {} rounds the keys of {} tokens together, so its pages are multiples "
        "of {} tokens, not {}: choose such a page_size",
        name, group, group, options.page_size));
  }
  if (options.exact_recent < group) {
    throw Error(fmt::format(
        "a key/value cache in {} rounds the keys of {} tokens together, and holds those as they "
        "are that still come together: give exact_recent {} or more, not {}",
        name, group, group, options.exact_recent));
  }
  for (const LayerKv& layer : layers) {
    if (layer.sink > 0 && layer.window < exact_window(options)) {
      throw Error(fmt::format(
          "a key/value cache in {} with exact_recent {} reads up to {} tokens as they are, more "
          "than the {} of the window beside the sink: raise the window's recent, or lower "
          "exact_recent",
          name, options.exact_recent, exact_window(options), layer.window));
    }
  }
}

void check_options(const KvCacheOptions& options) {
  SPECDEC_CHECK(options.page_size > 0, "cache: page_size {}", options.page_size);
  SPECDEC_CHECK(options.max_length > 0 &&
                    options.max_length <= std::numeric_limits<int32_t>::max() - options.page_size,
                "cache: max_length {}", options.max_length);
  SPECDEC_CHECK(options.max_pages >= 0 && options.max_bytes >= 0 && options.max_rows >= 0 &&
                    options.max_pending >= 0 && options.window_slack >= 0,
                "cache: {} pages, {} bytes, {} rows, {} pending nodes, slack {}", options.max_pages,
                options.max_bytes, options.max_rows, options.max_pending, options.window_slack);
  SPECDEC_CHECK(options.dtype == at::kFloat || options.dtype == at::kDouble,
                "cache: activations of dtype {}", c10::toString(options.dtype));
  SPECDEC_CHECK(options.rotation == KvRotation::kNone || has_scales(options.format),
                "cache: a rotation in {}", kv_format_name(options.format));
  check_format(options);
  check_exact_recent(options);
}

}  // namespace

void check_cache(const std::vector<LayerKv>& layers, const KvCacheOptions& options) {
  check_options(options);
  check_layers(layers);
  check_head_dims(layers, options.format);
  check_levels(layers, options);
  check_key_groups(layers, options);
}

}  // namespace specdec
