#include "kv/page_capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/prefill_size.h"
#include "kv/page_memory.h"

namespace specdec {
namespace {

constexpr int64_t kReservedRows = 4096;  // addresses cost nothing
constexpr int64_t kReservedBytes = int64_t{1} << 40;

int64_t pages_of(int64_t tokens, const KvCacheOptions& options) {
  return (tokens + options.page_size - 1) / options.page_size;
}

/// The options of exact pages, but for their number.
KvCacheOptions exact_form(const KvCacheOptions& options) {
  KvCacheOptions exact = options;
  exact.format = KvFormat::kNative;
  exact.rotation = KvRotation::kNone;  // they are given rotated
  exact.window_slack = options.window_slack > 0 ? options.window_slack : kExactSlack;
  exact.exact_recent = 0;
  return exact;
}

/// Bytes of the pages of all layers where one that sees everything has `pages`. A double, since
/// there may be many.
double bytes_of_pages(const std::vector<LayerKv>& layers, int64_t pages,
                      const KvCacheOptions& options) {
  double bytes = 0;
  for (const LayerKv& layer : layers) {
    bytes += static_cast<double>(page_bytes(layer, options)) *
             static_cast<double>(windowed_pages(layer.window, pages, options));
  }
  return options.exact_recent == 0
             ? bytes
             : bytes + bytes_of_pages(exact_layers(layers, options), pages, exact_form(options));
}

/// Pending nodes of a row, as a rule: of a piece of a prompt.
int64_t new_tokens(const KvCacheOptions& options) {
  return options.max_pending > 0 ? options.max_pending : kPrefillTokens;
}

constexpr int64_t kMostPageNumbers = std::numeric_limits<int32_t>::max();

/// Most pages of so many bytes.
int64_t affordable_pages(const std::vector<LayerKv>& layers, int64_t bytes,
                         const KvCacheOptions& options) {
  int64_t fits = 0;
  for (int64_t step = int64_t{1} << 30U; step > 0; step /= 2) {
    if (bytes_of_pages(layers, fits + step, options) <= static_cast<double>(bytes)) {
      fits += step;
    }
  }
  return std::min(fits, kMostPageNumbers);
}

}  // namespace

int64_t page_bytes(const LayerKv& layer, const KvCacheOptions& options) {
  return layer.source_layer >= 0
             ? 0
             : 2 * layer.kv_heads * kv_width(options.format, layer.head_dim) * options.page_size *
                   static_cast<int64_t>(
                       c10::elementSize(kv_element_type(options.format, options.dtype)));
}

int64_t windowed_pages(int64_t window, int64_t pages, const KvCacheOptions& options) {
  if (options.window_slack == 0 || window == 0) {
    return pages;
  }
  const int64_t of_row = pages_of(options.max_length, options);
  // The first and the last page may hold one token each.
  const int64_t windowed =
      std::min(of_row, pages_of(window + options.window_slack + new_tokens(options), options) + 1);
  return pages / of_row * windowed + std::min(pages % of_row, windowed);
}

int64_t page_capacity(const std::vector<LayerKv>& layers, const KvCacheOptions& options) {
  if (options.max_bytes > 0) {
    const int64_t affordable = affordable_pages(layers, options.max_bytes, options);
    if (affordable == 0) {
      throw Error(
          fmt::format("a key/value cache of {} bytes holds no page of {} tokens, which takes {} "
                      "bytes: raise the cache's megabytes",
                      options.max_bytes, options.page_size,
                      static_cast<int64_t>(bytes_of_pages(layers, 1, options))));
    }
    return options.max_pages > 0 ? std::min(options.max_pages, affordable) : affordable;
  }
  if (options.max_pages > 0) {
    return std::min(options.max_pages, kMostPageNumbers);
  }
  const int64_t of_row = pages_of(options.max_length, options);
  if (options.max_rows > 0 || allocates_at_once(options.device)) {
    return std::min(std::max<int64_t>(1, options.max_rows) * of_row, kMostPageNumbers);
  }
  const int64_t addressed = affordable_pages(layers, kReservedBytes, options);
  return std::min(std::max(of_row, std::min(kReservedRows * of_row, addressed)), kMostPageNumbers);
}

int64_t state_capacity(int64_t state_bytes, const KvCacheOptions& options) {
  const StateOptions& states = options.states;
  const bool at_once = allocates_at_once(options.device);
  const int64_t rows = at_once ? std::max<int64_t>(1, options.max_rows) : kReservedRows;
  const int64_t most = states.max_bytes > 0
                           ? states.max_bytes / state_bytes
                           : rows * (1 + states.most_checkpoints) + new_tokens(options);
  return std::min({most, at_once ? most : kReservedBytes / state_bytes, kMostPageNumbers});
}

int64_t exact_window(const KvCacheOptions& options) {
  return options.exact_recent + kv_key_group(options.format) - 1;
}

std::vector<LayerKv> exact_layers(std::vector<LayerKv> layers, const KvCacheOptions& options) {
  for (LayerKv& layer : layers) {
    layer.window = exact_window(options);
    layer.sink = 0;
  }
  return layers;
}

KvCacheOptions exact_options(const std::vector<LayerKv>& layers, const KvCacheOptions& options) {
  KvCacheOptions exact = exact_form(options);
  exact.max_pages = page_capacity(layers, options);
  exact.max_bytes = 0;
  return exact;
}

}  // namespace specdec
