#include "kv/page_pool.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/kernels/copy_queue.h"
#include "core/kernels/metal/metal_formats.h"
#include "kv/addressed_blocks.h"
#include "kv/device_blocks.h"
#include "kv/page_tiers.h"

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

/// Throws Error where the memory holds no block of a layer.
void check_memory(const TieredPages& pages, int64_t page_size) {
  for (int64_t layer = 0; layer < pages.layers(); ++layer) {
    const int64_t count = pages.pages_per_block[static_cast<size_t>(layer)];
    if (const int64_t bytes = pages.block_bytes(layer); bytes > pages.memory_bytes) {
      throw Error(fmt::format(
          "{} bytes of keys and values in memory do not hold {} tokens of layer {}, the fewest "
          "that "
          "come from disk, which take {} bytes: raise the cache's memory_megabytes, or lower its "
          "page_size",
          pages.memory_bytes, count * page_size, layer, bytes));
    }
  }
}

}  // namespace

PagePool::PagePool(std::vector<LayerKv> layers, const KvCacheOptions& options,
                   std::optional<int64_t> window)
    : layers_(std::move(layers)), options_(options), window_(window), pages_(layers_.size()) {
  check_options(options_);
  check_layers(layers_);
  check_head_dims(layers_, options_.format);
  check_levels(layers_, options_);
  check_key_groups(layers_, options_);
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i) && layers_[i].levels.defined()) {
      pages_[i].levels = layers_[i].levels.to(options_.device);
    }
  }
  capacity_ = windowed_pages(window.value_or(0), page_capacity(layers_, options_), options_);
  if (options_.memory_bytes == 0) {
    make_pages();
    return;
  }
  const TieredPages pages = tiered_pages();
  if (options_.device.is_meta()) {
    make_pages();
  } else if (on_host()) {
    make_pages();
    make_tiers(pages);
  } else {
    make_device_tiers(pages);
  }
}

/// Shape of a page's keys, or values.
std::vector<int64_t> PagePool::sizes_of(const LayerKv& layer, bool values) const {
  const int64_t width = width_of(layer);
  return values ? std::vector{layer.kv_heads, options_.page_size, width}
                : std::vector{layer.kv_heads, width, options_.page_size};
}

void PagePool::make_pages() {
  const auto elements = at::TensorOptions().dtype(page_dtype()).device(options_.device);
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      pages_[i].keys = {sizes_of(layers_[i], false), elements, capacity_};
      pages_[i].values = {sizes_of(layers_[i], true), elements, capacity_};
    }
  }
}

/// Makes the capacity one of whole blocks.
TieredPages PagePool::tiered_pages() {
  SPECDEC_CHECK(!window_, "cache: memory_bytes of a cache with window_slack");
  if (on_host() && allocates_at_once(options_.device)) {
    throw Error(
        "pages of a cache cannot lie on disk where the program replaces LibTorch's allocator: "
        "choose a cache of type paged");
  }
  TieredPages pages{.memory_bytes = options_.memory_bytes};
  for (size_t i = 0; i < layers_.size(); ++i) {
    SPECDEC_CHECK(layers_[i].sink == 0,
                  "cache: memory_bytes would leave the sink of layer {} on disk", i);
    pages.page_bytes.push_back(owns(i) ? specdec::page_bytes(layers_[i], options_) / 2 : 0);
  }
  const bool as_on_host = on_host() || options_.device.is_meta();  // the fewest bytes
  pages.pages_per_block =
      as_on_host ? equal_pages(pages.page_bytes) : equal_bytes(pages.page_bytes);
  check_memory(pages, options_.page_size);
  int64_t whole = 1;
  for (const int64_t count : pages.pages_per_block) {
    whole = std::lcm(whole, count);
  }
  capacity_ = std::max(whole, capacity_ / whole * whole);
  pages.capacity = capacity_;
  return pages;
}

void PagePool::make_tiers(const TieredPages& pages) {
  std::vector<AddressedBlocks::Addresses> addresses(pages_.size());
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      for (PageMemory* memory : {&pages_[i].keys, &pages_[i].values}) {
        memory->reserve(capacity_);  // the last block is a whole one
      }
      addresses[i] = {static_cast<std::byte*>(pages_[i].keys.pages().mutable_data_ptr()),
                      static_cast<std::byte*>(pages_[i].values.pages().mutable_data_ptr())};
    }
  }
  auto file = temporary_page_file(options_.disk, pages.file_bytes());
  tiers_ = std::make_shared<PageTiers>(
      std::make_unique<AddressedBlocks>(pages, std::move(addresses), std::move(file)),
      options_.tier_policy);
}

/// Pages of all layers lie in the same slots.
void PagePool::make_device_tiers(const TieredPages& pages) {
  const auto copies = options_.copies != nullptr ? options_.copies : device_copies(options_.device);
  SPECDEC_CHECK(copies != nullptr, "cache: memory_bytes on {} without a queue of copies",
                options_.device.str());
  auto file = temporary_page_file(options_.disk, pages.file_bytes());
  auto blocks = std::make_unique<DeviceBlocks>(pages, std::move(file), copies, options_.host_bytes);
  const auto elements = at::TensorOptions().dtype(page_dtype()).device(options_.device);
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (!owns(i)) {
      continue;
    }
    const auto tensor = [&](bool values) {
      std::vector<int64_t> sizes = sizes_of(layers_[i], values);
      sizes.insert(sizes.begin(), blocks->slots() * pages.pages_per_block[i]);
      const auto keep_alive = [memory = blocks->memory()](void* /*data*/) {};
      return at::from_blob(blocks->slot(0, values), sizes, keep_alive, elements, options_.device);
    };
    pages_[i].keys = PageMemory(tensor(false));
    pages_[i].values = PageMemory(tensor(true));
  }
  tiers_ = std::make_shared<PageTiers>(std::move(blocks), options_.tier_policy);
}

int64_t PagePool::number(int64_t layer, int64_t page) const {
  return tiers_ == nullptr ? page : tiers_->number(source_of(layer), page);
}

void PagePool::bring(int64_t layer, std::span<const PageUse> uses) const {
  if (tiers_ != nullptr) {
    tiers_->bring(source_of(layer), uses);
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
  return tiers_ == nullptr && allocates_at_once(options_.device) ? capacity_ : pages;
}

void PagePool::reserve(int64_t pages) {
  if (pages <= usable_) {
    return;
  }
  if (tiers_ != nullptr) {
    SPECDEC_CHECK(pages <= capacity_, "{} pages of {}", pages, capacity_);
    usable_ = capacity_;
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
  if (tiers_ != nullptr) {
    return;  // the others' memory would be taken for them
  }
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      pages_[i].keys.touch(pages);
      pages_[i].values.touch(pages);
    }
  }
}

int64_t PagePool::source_of(int64_t layer) const {
  const int64_t other = geometry(layer).source_layer;
  return other < 0 ? layer : other;
}

const PagePool::Pages& PagePool::source(int64_t layer) const {
  return pages_[static_cast<size_t>(source_of(layer))];
}

int64_t PagePool::page_offset(const LayerKv& layer, int64_t page) const {
  return page * layer.kv_heads * options_.page_size * width_of(layer);
}

}  // namespace specdec
