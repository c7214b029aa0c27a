#include "kv/page_pool.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

/// Copies as plain memory: at::Tensor::copy_ refuses tensors made in inference mode outside of it.
void copy_numbers(const Tensor& to, int64_t to_offset, const Tensor& from, int64_t from_offset,
                  int64_t count) {
  const auto size = static_cast<int64_t>(to.element_size());
  std::memcpy(static_cast<char*>(to.mutable_data_ptr()) + to_offset * size,
              static_cast<const char*>(from.const_data_ptr()) + from_offset * size,
              static_cast<size_t>(count * size));
}

/// Copies by ATen, wherever the tensors are and in whichever mode they were made.
void copy_elsewhere(const Tensor& to, const Tensor& from) {
  const c10::InferenceMode inference;
  to.copy_(from);
}

/// Numbers of a tensor from an offset on, each `stride` after the one before.
struct Column {
  const Tensor& tensor;
  int64_t offset;
  int64_t stride;
};

template <class Bits>
void copy_column_of(const Column& to, const Column& from, int64_t count) {
  auto* target = static_cast<Bits*>(to.tensor.mutable_data_ptr()) + to.offset;
  const auto* source = static_cast<const Bits*>(from.tensor.const_data_ptr()) + from.offset;
  for (int64_t i = 0; i < count; ++i) {
    target[i * to.stride] = source[i * from.stride];
  }
}

void copy_column(const Column& to, const Column& from, int64_t count) {
  switch (to.tensor.element_size()) {
    case 1:
      return copy_column_of<uint8_t>(to, from, count);
    case 2:
      return copy_column_of<uint16_t>(to, from, count);
    case 4:
      return copy_column_of<uint32_t>(to, from, count);
    default:
      return copy_column_of<uint64_t>(to, from, count);
  }
}

/// View of a token, [kv_heads, head_dim], in pages whose slots are dimension `slots` of a page.
Tensor token_of(const Tensor& pages, PagePool::Place place, int64_t slots) {
  return pages.select(0, place.page).select(slots, place.index);
}

/// Indices of pages and of slots within them, each int64 [moves] on a device.
struct MovedSlots {
  Tensor from_pages;
  Tensor from_slots;
  Tensor to_pages;
  Tensor to_slots;
};

MovedSlots moved_slots(std::span<const PagePool::Move> moves, at::Device device) {
  const Tensor host = at::empty({4, std::ssize(moves)}, at::kLong);
  auto* index = host.mutable_data_ptr<int64_t>();
  const size_t count = moves.size();
  for (size_t i = 0; i < count; ++i) {
    index[i] = moves[i].from.page;
    index[count + i] = moves[i].from.index;
    index[2 * count + i] = moves[i].to.page;
    index[3 * count + i] = moves[i].to.index;
  }
  const Tensor all = host.to(device);
  return {all[0], all[1], all[2], all[3]};
}

/// Moves slots of pages [pages, kv_heads, page_size, head_dim] with ATen: reads all, then writes.
void move_elsewhere(const Tensor& pages, const MovedSlots& slots) {
  const c10::InferenceMode inference;
  const Tensor by_slot = pages.transpose(1, 2);  // [pages, page_size, kv_heads, head_dim]
  const Tensor moved = at::index(by_slot, {slots.from_pages, slots.from_slots});
  Tensor written = by_slot;
  at::index_put_(written, {slots.to_pages, slots.to_slots}, moved);
}

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
  const bool half = options.format == KvFormat::kBFloat16;
  if (options.dtype != at::kFloat) {
    throw Error(
        fmt::format("a key/value cache in {} needs float32 activations, not float64; leave "
                    "{} out, or choose dtype: float32",
                    name, half ? "kv_dtype" : "the cache's format"));
  }
  const bool cpu_only = is_for_cpu_only(options.format);
  const bool on_cpu = options.device.is_cpu() || options.device.is_meta();  // the latter: no memory
  if (!half && (options.device.is_mps() || (cpu_only && !on_cpu))) {
    throw Error(fmt::format(
        "a key/value cache in {} is for the CPU{}; on {} there are float32 and kv_dtype: bfloat16",
        name, cpu_only ? " alone" : " and CUDA", options.device.str()));
  }
}

void check_rotation(const KvCacheOptions& options) {
  if (options.rotation == KvRotation::kNone) {
    return;
  }
  SPECDEC_CHECK(has_scales(options.format), "cache: a rotation in {}",
                kv_format_name(options.format));
  if (!options.device.is_cpu() && !options.device.is_meta()) {
    throw Error(fmt::format(
        "a cache with rotation: hadamard runs on the CPU only, not on {}: leave the rotation out",
        options.device.str()));
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
  check_format(options);
  check_rotation(options);
}

}  // namespace

PagePool::PagePool(std::vector<LayerKv> layers, const KvCacheOptions& options,
                   std::optional<int64_t> window)
    : layers_(std::move(layers)), options_(options), window_(window), pages_(layers_.size()) {
  check_options(options_);
  check_layers(layers_);
  check_head_dims(layers_, options_.format);
  capacity_ = windowed_pages(window.value_or(0), page_capacity(layers_, options_), options_);
  const auto elements = at::TensorOptions().dtype(page_dtype()).device(options_.device);
  for (size_t i = 0; i < pages_.size(); ++i) {
    const LayerKv& layer = layers_[i];
    if (owns(i)) {
      const int64_t heads = layer.kv_heads;
      const int64_t width = width_of(layer);
      pages_[i].keys = {{heads, width, options_.page_size}, elements, capacity_};
      pages_[i].values = {{heads, options_.page_size, width}, elements, capacity_};
    }
  }
}

const LayerKv& PagePool::geometry(int64_t layer) const {
  SPECDEC_CHECK(layer >= 0 && layer < layers(), "cache: layer {} of {}", layer, layers());
  return layers_[static_cast<size_t>(layer)];
}

at::ScalarType PagePool::page_dtype() const {
  return kv_element_type(options_.format, options_.dtype);
}

int64_t PagePool::width_of(const LayerKv& layer) const {
  return kv_width(options_.format, layer.head_dim);
}

int64_t PagePool::page_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    bytes += owns(i) ? specdec::page_bytes(layers_[i], options_) : 0;
  }
  return bytes;
}

int64_t PagePool::allocated(int64_t pages) const {
  return allocates_at_once(options_.device) ? capacity_ : pages;
}

void PagePool::reserve(int64_t pages) {
  if (pages <= usable_) {
    return;
  }
  // Twice as many, so that the system is asked now and then only.
  const int64_t usable = std::min(std::max(pages, 2 * usable_), capacity_);
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      pages_[i].keys.reserve(usable);
      pages_[i].values.reserve(usable);
    }
  }
  usable_ = usable;
}

void PagePool::touch(int64_t pages) {
  reserve(pages);
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      pages_[i].keys.touch(pages);
      pages_[i].values.touch(pages);
    }
  }
}

void PagePool::copy_within(const Tensor& pages, int64_t from, int64_t to) const {
  if (on_host()) {
    const int64_t numbers = pages.stride(0);
    copy_numbers(pages, to * numbers, pages, from * numbers, numbers);
    return;
  }
  copy_elsewhere(pages.select(0, to), pages.select(0, from));
}

void PagePool::copy_page(int64_t from, int64_t to) {
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      copy_within(pages_[i].keys.pages(), from, to);
      copy_within(pages_[i].values.pages(), from, to);
    }
  }
}

void PagePool::move_slots(std::span<const Move> moves) {
  if (moves.empty()) {
    return;
  }
  const bool host = on_host();
  const MovedSlots slots = host ? MovedSlots() : moved_slots(moves, options_.device);
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (!owns(i)) {
      continue;
    }
    if (!host) {
      move_elsewhere(pages_[i].keys.pages().transpose(2, 3), slots);
      move_elsewhere(pages_[i].values.pages(), slots);
      continue;
    }
    for (const Move& move : moves) {
      copy_token(i, move);
    }
  }
}

void PagePool::copy_token(size_t layer, const Move& move) const {
  const LayerKv& own = layers_[layer];
  const Tensor& keys = pages_[layer].keys.pages();
  const Tensor& values = pages_[layer].values.pages();
  int64_t source = page_offset(own, move.from.page);
  int64_t target = page_offset(own, move.to.page);
  const int64_t width = width_of(own);
  for (int64_t head = 0; head < own.kv_heads; ++head) {
    copy_column({keys, target + move.to.index, options_.page_size},
                {keys, source + move.from.index, options_.page_size}, width);
    copy_numbers(values, target + move.to.index * width, values, source + move.from.index * width,
                 width);
    source += options_.page_size * width;
    target += options_.page_size * width;
  }
}

void PagePool::read_token(int64_t layer, Place place, int64_t token,
                          std::pair<Tensor, Tensor>& out) const {
  const LayerKv& own = geometry(layer);
  const Tensor& stored_keys = keys(layer);
  const Tensor& stored_values = values(layer);
  if (!on_host()) {
    copy_elsewhere(out.first.select(1, token), token_of(stored_keys, place, 2));
    copy_elsewhere(out.second.select(1, token), token_of(stored_values, place, 1));
    return;
  }
  const int64_t width = width_of(own);
  int64_t from = page_offset(own, place.page);
  int64_t to = token * width;
  for (int64_t head = 0; head < own.kv_heads; ++head) {
    copy_column({out.first, to, 1}, {stored_keys, from + place.index, options_.page_size}, width);
    copy_numbers(out.second, to, stored_values, from + place.index * width, width);
    from += options_.page_size * width;
    to += out.first.size(1) * width;
  }
}

LayerKeyValues PagePool::copy_out(int64_t layer, std::span<const int32_t> pages,
                                  int64_t tokens) const {
  const LayerKv& own = geometry(layer);
  const Tensor numbers =
      at::zeros({own.kv_heads, tokens, width_of(own)}, at::TensorOptions().dtype(page_dtype()));
  LayerKeyValues copies{numbers, at::zeros_like(numbers)};
  const int64_t size = options_.page_size;
  for (int64_t first = 0; first < tokens; first += size) {
    const int64_t count = std::min(size, tokens - first);
    const int64_t page = pages[static_cast<size_t>(first / size)];
    if (page < 0) {
      continue;
    }
    copy_elsewhere(copies.keys.narrow(1, first, count),
                   keys(layer).select(0, page).narrow(2, 0, count).transpose(1, 2));
    copy_elsewhere(copies.values.narrow(1, first, count),
                   values(layer).select(0, page).narrow(1, 0, count));
  }
  return copies;
}

void PagePool::copy_in(int64_t layer, std::span<const int32_t> pages, TokenRange tokens,
                       const LayerKeyValues& from) {
  const LayerKv& own = geometry(layer);
  SPECDEC_CHECK(from.keys.dim() == 3 && from.keys.size(0) == own.kv_heads &&
                    from.keys.size(1) >= tokens.end - tokens.begin &&
                    from.keys.size(2) == width_of(own) && from.keys.scalar_type() == page_dtype(),
                "cache: layer {} has {} kv heads of {} in {}, not those of what it restores", layer,
                own.kv_heads, own.head_dim, kv_format_name(options_.format));
  const int64_t size = options_.page_size;
  for (int64_t first = tokens.begin; first < tokens.end;) {
    const int64_t in_page = first % size;
    const int64_t count = std::min(size - in_page, tokens.end - first);
    const int64_t page = pages[static_cast<size_t>(first / size)];
    if (page >= 0) {
      const int64_t given = first - tokens.begin;
      copy_elsewhere(keys(layer).select(0, page).narrow(2, in_page, count),
                     from.keys.narrow(1, given, count).transpose(1, 2));
      copy_elsewhere(values(layer).select(0, page).narrow(1, in_page, count),
                     from.values.narrow(1, given, count));
    }
    first += count;
  }
}

const PagePool::Pages& PagePool::source(int64_t layer) const {
  const int64_t other = geometry(layer).source_layer;
  return pages_[static_cast<size_t>(other < 0 ? layer : other)];
}

int64_t PagePool::page_offset(const LayerKv& layer, int64_t page) const {
  return page * layer.kv_heads * options_.page_size * width_of(layer);
}

}  // namespace specdec
