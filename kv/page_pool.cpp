#include "kv/page_pool.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/kernels/copy_queue.h"
#include "kv/addressed_blocks.h"
#include "kv/cache_checks.h"
#include "kv/device_blocks.h"
#include "kv/page_tiers.h"

namespace specdec {
namespace {

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

/// Uses of the pages of a list that are there.
std::vector<PageUse> uses_of(std::span<const int32_t> pages, bool is_written) {
  std::vector<PageUse> uses;
  for (const int32_t page : pages) {
    if (page >= 0) {
      uses.push_back({page, is_written});
    }
  }
  return uses;
}

std::vector<PageUse> uses_of(std::span<const PagePool::Move> moves) {
  std::vector<PageUse> uses;
  for (const PagePool::Move& move : moves) {
    uses.insert(uses.end(), {{move.from.page}, {move.to.page, true}});
  }
  return uses;
}

}  // namespace

PagePool::PagePool(std::vector<LayerKv> layers, const KvCacheOptions& options,
                   std::optional<int64_t> window)
    : layers_(std::move(layers)), options_(options), window_(window), pages_(layers_.size()) {
  check_cache(layers_, options_);
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      pages_[i] = LayerPages(layers_[i], options_);
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

void PagePool::make_pages() {
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      pages_[i].make(capacity_);
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
      pages_[i].reserve(capacity_);  // the last block is a whole one
      addresses[i] = {static_cast<std::byte*>(pages_[i].keys().mutable_data_ptr()),
                      static_cast<std::byte*>(pages_[i].values().mutable_data_ptr())};
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
    const auto tensor = [&](bool values, std::vector<int64_t> sizes) {
      sizes.insert(sizes.begin(), blocks->slots() * pages.pages_per_block[i]);
      const auto keep_alive = [memory = blocks->memory()](void* /*data*/) {};
      return at::from_blob(blocks->slot(0, values), sizes, keep_alive, elements, options_.device);
    };
    pages_[i].adopt(tensor(false, pages_[i].key_sizes()), tensor(true, pages_[i].value_sizes()));
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
      pages_[i].reserve(usable);
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
      pages_[i].touch(pages);
    }
  }
}

int64_t PagePool::source_of(int64_t layer) const {
  const int64_t other = geometry(layer).source_layer;
  return other < 0 ? layer : other;
}

const LayerPages& PagePool::source(int64_t layer) const {
  return pages_[static_cast<size_t>(source_of(layer))];
}

void PagePool::copy_page(int64_t from, int64_t to) {
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (owns(i)) {
      bring(static_cast<int64_t>(i), std::array{PageUse{from}, PageUse{to, true}});
      pages_[i].copy_page(number(static_cast<int64_t>(i), from),
                          number(static_cast<int64_t>(i), to));
    }
  }
}

void PagePool::move_slots(std::span<const Move> moves) {
  if (moves.empty()) {
    return;
  }
  const bool host = on_host();
  MovedSlots slots;  // of all layers, unless each has pages elsewhere
  if (!host && !renumbers()) {
    slots = moved_slots(moves, options_.device);
  }
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (!owns(i)) {
      continue;
    }
    const auto layer = static_cast<int64_t>(i);
    if (tiers_ != nullptr) {
      bring(layer, uses_of(moves));
    }
    if (host) {
      pages_[i].move_slots(moves);
      continue;
    }
    if (renumbers()) {
      slots = moved_slots(located(layer, moves), options_.device);
    }
    pages_[i].move_slots(slots);
  }
}

/// The moves in a layer's keys() and values().
std::vector<PagePool::Move> PagePool::located(int64_t layer, std::span<const Move> moves) const {
  std::vector<Move> located(moves.begin(), moves.end());
  for (Move& move : located) {
    move.from.page = number(layer, move.from.page);
    move.to.page = number(layer, move.to.page);
  }
  return located;
}

void PagePool::read_token(int64_t layer, Place place, int64_t token,
                          std::pair<Tensor, Tensor>& out) const {
  bring(layer, std::array{PageUse{place.page}});
  place.page = number(layer, place.page);
  source(layer).read_token(place, token, out);
}

LayerKeyValues PagePool::copy_out(int64_t layer, std::span<const int32_t> pages,
                                  int64_t tokens) const {
  const LayerKv& own = geometry(layer);
  const Tensor numbers =
      at::zeros({own.kv_heads, tokens, width_of(own)}, at::TensorOptions().dtype(page_dtype()));
  LayerKeyValues copies{numbers, at::zeros_like(numbers)};
  constexpr size_t kBrought = 16;  // pages at a time: memory need not hold all
  const int64_t size = options_.page_size;
  for (int64_t first = 0; first < tokens; first += size) {
    const auto index = static_cast<size_t>(first / size);
    if (index % kBrought == 0) {
      bring(layer, uses_of(pages.subspan(index, std::min(kBrought, pages.size() - index)), false));
    }
    const int64_t count = std::min(size, tokens - first);
    if (pages[index] < 0) {
      continue;
    }
    source(layer).copy_out(number(layer, pages[index]), count, first, copies);
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
  const auto first_page = static_cast<size_t>(tokens.begin / size);
  const auto page_end = static_cast<size_t>((tokens.end + size - 1) / size);
  bring(layer, uses_of(pages.subspan(first_page, page_end - first_page), true));
  for (int64_t first = tokens.begin; first < tokens.end;) {
    const int64_t in_page = first % size;
    const int64_t count = std::min(size - in_page, tokens.end - first);
    if (const int32_t named = pages[static_cast<size_t>(first / size)]; named >= 0) {
      source(layer).copy_in({number(layer, named), in_page}, count, first - tokens.begin, from);
    }
    first += count;
  }
}

}  // namespace specdec
