#include "core/transformer/paging/layer_pager.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"
#include "core/transformer/paging/layer_memory.h"

namespace specdec {

LayerPager::LayerPager(std::shared_ptr<LayerStore> store, std::vector<int64_t> layers,
                       Copies copies)
    : store_(std::move(store)), layers_(std::move(layers)) {
  for (const int64_t layer : layers_) {
    SPECDEC_CHECK(layer >= 0 && layer < store_->layers(), "LayerPager: layer {} of {}", layer,
                  store_->layers());
  }
  for (size_t buffer = 0; buffer < buffers_.size(); ++buffer) {
    int64_t bytes = 0;
    for (size_t i = buffer; i < layers_.size(); i += buffers_.size()) {
      bytes = std::max(bytes, store_->bytes(layers_[i]));
    }
    bytes = std::max(bytes, kLayerAlignment);
    Buffer& made = buffers_[buffer];
    made.copies = std::move(copies[buffer]);
    made.memory = made.copies == nullptr ? layer_memory(bytes) : made.copies->on_device(bytes);
    made.pinned = made.copies == nullptr ? nullptr : made.copies->pinned(bytes);
  }
  reader_ = std::thread([this] { run(); });
}

LayerPager::~LayerPager() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  work_.notify_one();
  reader_.join();
}

size_t LayerPager::buffer_of(int64_t layer) const {
  const auto found = std::lower_bound(layers_.begin(), layers_.end(), layer);
  SPECDEC_CHECK(found != layers_.end() && *found == layer, "LayerPager: layer {} is none of its {}",
                layer, layers_.size());
  return static_cast<size_t>(found - layers_.begin()) % buffers_.size();
}

const std::shared_ptr<std::byte>& LayerPager::memory(int64_t layer) const {
  return buffers_[buffer_of(layer)].memory;
}

void LayerPager::prefetch(std::span<const int64_t> layers) {
  {
    const std::lock_guard lock(mutex_);
    order_.assign(layers.begin(), layers.end());
    upcoming_ = 0;
  }
  work_.notify_one();
}

void LayerPager::acquire(int64_t layer) {
  std::unique_lock lock(mutex_);
  Buffer& buffer = buffers_[buffer_of(layer)];
  const auto place = std::find(order_.begin(), order_.end(), layer);
  if (place != order_.end()) {
    upcoming_ = static_cast<size_t>(place - order_.begin()) + 1;
  }
  ++reads_.layers;
  if (buffer.layer == layer && buffer.is_filled) {
    ++reads_.ready;
  } else {
    wait_for(layer, lock);
  }
  if (buffer.copies != nullptr) {
    buffer.copies->let_ops_wait();
  }
  ++buffer.holders;
  if (!std::exchange(buffer.was_used, true)) {
    reads_.bytes += store_->bytes(layer);
  }
  work_.notify_one();
}

void LayerPager::wait_for(int64_t layer, std::unique_lock<std::mutex>& lock) {
  Buffer& buffer = buffers_[buffer_of(layer)];
  const Stopwatch waited;
  wanted_.push_back(layer);
  work_.notify_one();
  changed_.wait(lock, [&] { return is_done(layer); });
  wanted_.erase(std::find(wanted_.begin(), wanted_.end(), layer));
  reads_.wait_seconds += waited.seconds();
  if (buffer.failure == nullptr) {
    return;
  }
  const std::exception_ptr failure = buffer.failure;
  if (std::find(wanted_.begin(), wanted_.end(), layer) == wanted_.end()) {  // all know: try again
    buffer.failure = nullptr;
    buffer.layer = -1;
    work_.notify_one();  // another layer of this buffer may be waited for
  }
  std::rethrow_exception(failure);
}

void LayerPager::release(int64_t layer) {
  {
    const std::lock_guard lock(mutex_);
    --buffers_[buffer_of(layer)].holders;
  }
  work_.notify_one();
}

LayerReads LayerPager::reads() const {
  const std::lock_guard lock(mutex_);
  return reads_;
}

bool LayerPager::is_done(int64_t layer) const {
  const Buffer& buffer = buffers_[buffer_of(layer)];
  return buffer.layer == layer && (buffer.is_filled || buffer.failure != nullptr);
}

/// Nobody reads what it holds, or is about to.
bool LayerPager::is_free(size_t buffer) const {
  const Buffer& held = buffers_[buffer];
  return held.holders == 0 &&
         !(held.layer >= 0 && is_done(held.layer) &&
           std::find(wanted_.begin(), wanted_.end(), held.layer) != wanted_.end());
}

std::optional<int64_t> LayerPager::next() const {
  for (const int64_t layer : wanted_) {
    if (!is_done(layer) && is_free(buffer_of(layer))) {
      return layer;
    }
  }
  std::array<bool, kBuffers> is_claimed = {};  // by an earlier one
  for (size_t i = 0; i < std::min(buffers_.size(), order_.size()); ++i) {
    const int64_t layer = order_[(upcoming_ + i) % order_.size()];
    const size_t buffer = buffer_of(layer);
    if (!std::exchange(is_claimed[buffer], true) && !is_done(layer) && is_free(buffer)) {
      return layer;
    }
  }
  return std::nullopt;
}

void LayerPager::fill(int64_t layer, std::unique_lock<std::mutex>& lock) {
  Buffer& buffer = buffers_[buffer_of(layer)];
  if (buffer.is_filled && !buffer.was_used) {
    reads_.bytes += store_->bytes(buffer.layer);  // in vain
  }
  buffer.layer = layer;
  buffer.is_filled = buffer.was_used = false;
  buffer.failure = nullptr;
  lock.unlock();
  std::exception_ptr failure;
  try {
    read(layer, buffer);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  buffer.is_filled = failure == nullptr;
  buffer.failure = failure;
  changed_.notify_all();
}

void LayerPager::read(int64_t layer, Buffer& buffer) {
  const int64_t bytes = store_->bytes(layer);
  const auto size = static_cast<size_t>(bytes);
  if (buffer.copies == nullptr) {
    store_->read(layer, {buffer.memory.get(), size});
    return;
  }
  buffer.copies->wait_for_ops();  // of those that held the layer before: nobody does now
  if (buffer.copied >= 0) {
    buffer.copies->wait(buffer.copied);
  }
  store_->read(layer, {buffer.pinned.get(), size});
  buffer.copies->copy(buffer.memory.get(), buffer.pinned.get(), bytes);
  buffer.copied = buffer.copies->mark();
}

void LayerPager::run() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (const auto layer = next()) {
      fill(*layer, lock);
    } else {
      work_.wait(lock);
    }
  }
}

}  // namespace specdec
