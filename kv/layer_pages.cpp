#include "kv/layer_pages.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>

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
Tensor token_of(const Tensor& pages, LayerPages::Place place, int64_t slots) {
  return pages.select(0, place.page).select(slots, place.index);
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

MovedSlots moved_slots(std::span<const LayerPages::Move> moves, at::Device device) {
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

bool lies_on_host(const KvCacheOptions& options) {
  return options.device.is_cpu() && !options.as_device;
}

LayerPages::LayerPages(const LayerKv& layer, const KvCacheOptions& options)
    : kv_heads_(layer.kv_heads),
      page_size_(options.page_size),
      width_(kv_width(options.format, layer.head_dim)),
      elements_(at::TensorOptions()
                    .dtype(kv_element_type(options.format, options.dtype))
                    .device(options.device)),
      on_host_(lies_on_host(options)) {
  if (layer.levels.defined()) {
    levels_ = layer.levels.to(options.device);
  }
}

void LayerPages::make(int64_t capacity) {
  keys_ = {key_sizes(), elements_, capacity};
  values_ = {value_sizes(), elements_, capacity};
}

void LayerPages::adopt(Tensor keys, Tensor values) {
  keys_ = PageMemory(std::move(keys));
  values_ = PageMemory(std::move(values));
}

void LayerPages::reserve(int64_t pages) {
  keys_.reserve(pages);
  values_.reserve(pages);
}

void LayerPages::touch(int64_t pages) {
  keys_.touch(pages);
  values_.touch(pages);
}

void LayerPages::copy_page(int64_t from, int64_t to) const {
  copy_within(keys(), from, to);
  copy_within(values(), from, to);
}

void LayerPages::copy_within(const Tensor& pages, int64_t from, int64_t to) const {
  if (on_host_) {
    const int64_t numbers = pages.stride(0);
    copy_numbers(pages, to * numbers, pages, from * numbers, numbers);
    return;
  }
  copy_elsewhere(pages.select(0, to), pages.select(0, from));
}

void LayerPages::move_slots(std::span<const Move> moves) const {
  for (const Move& move : moves) {
    copy_token(move);
  }
}

void LayerPages::move_slots(const MovedSlots& moves) const {
  move_elsewhere(keys().transpose(2, 3), moves);
  move_elsewhere(values(), moves);
}

void LayerPages::copy_token(const Move& move) const {
  int64_t source = offset(move.from.page);
  int64_t target = offset(move.to.page);
  for (int64_t head = 0; head < kv_heads_; ++head) {
    copy_column({keys(), target + move.to.index, page_size_},
                {keys(), source + move.from.index, page_size_}, width_);
    copy_numbers(values(), target + move.to.index * width_, values(),
                 source + move.from.index * width_, width_);
    source += page_size_ * width_;
    target += page_size_ * width_;
  }
}

void LayerPages::read_token(Place place, int64_t token, std::pair<Tensor, Tensor>& out) const {
  if (!on_host_) {
    copy_elsewhere(out.first.select(1, token), token_of(keys(), place, 2));
    copy_elsewhere(out.second.select(1, token), token_of(values(), place, 1));
    return;
  }
  int64_t from = offset(place.page);
  int64_t to = token * width_;
  for (int64_t head = 0; head < kv_heads_; ++head) {
    copy_column({out.first, to, 1}, {keys(), from + place.index, page_size_}, width_);
    copy_numbers(out.second, to, values(), from + place.index * width_, width_);
    from += page_size_ * width_;
    to += out.first.size(1) * width_;
  }
}

void LayerPages::copy_out(int64_t page, int64_t count, int64_t first,
                          const LayerKeyValues& to) const {
  copy_elsewhere(to.keys.narrow(1, first, count),
                 keys().select(0, page).narrow(2, 0, count).transpose(1, 2));
  copy_elsewhere(to.values.narrow(1, first, count), values().select(0, page).narrow(1, 0, count));
}

void LayerPages::copy_in(Place place, int64_t count, int64_t first,
                         const LayerKeyValues& from) const {
  copy_elsewhere(keys().select(0, place.page).narrow(2, place.index, count),
                 from.keys.narrow(1, first, count).transpose(1, 2));
  copy_elsewhere(values().select(0, place.page).narrow(1, place.index, count),
                 from.values.narrow(1, first, count));
}

}  // namespace specdec
