// Copies of tokens and pages within the pool of a cache, out of it and into it.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "kv/page_pool.h"
#include "kv/page_tiers.h"

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

}  // namespace

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
      bring(static_cast<int64_t>(i), std::array{PageUse{from}, PageUse{to, true}});
      const int64_t source = number(static_cast<int64_t>(i), from);
      const int64_t target = number(static_cast<int64_t>(i), to);
      copy_within(pages_[i].keys.pages(), source, target);
      copy_within(pages_[i].values.pages(), source, target);
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
      for (const Move& move : moves) {
        copy_token(i, move);
      }
      continue;
    }
    if (renumbers()) {
      slots = moved_slots(located(layer, moves), options_.device);
    }
    move_elsewhere(pages_[i].keys.pages().transpose(2, 3), slots);
    move_elsewhere(pages_[i].values.pages(), slots);
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
  bring(layer, std::array{PageUse{place.page}});
  place.page = number(layer, place.page);
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
    const int64_t page = number(layer, pages[index]);
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
  const auto first_page = static_cast<size_t>(tokens.begin / size);
  const auto page_end = static_cast<size_t>((tokens.end + size - 1) / size);
  bring(layer, uses_of(pages.subspan(first_page, page_end - first_page), true));
  for (int64_t first = tokens.begin; first < tokens.end;) {
    const int64_t in_page = first % size;
    const int64_t count = std::min(size - in_page, tokens.end - first);
    if (const int32_t named = pages[static_cast<size_t>(first / size)]; named >= 0) {
      const int64_t page = number(layer, named);
      const int64_t given = first - tokens.begin;
      copy_elsewhere(keys(layer).select(0, page).narrow(2, in_page, count),
                     from.keys.narrow(1, given, count).transpose(1, 2));
      copy_elsewhere(values(layer).select(0, page).narrow(1, in_page, count),
                     from.values.narrow(1, given, count));
    }
    first += count;
  }
}

}  // namespace specdec
