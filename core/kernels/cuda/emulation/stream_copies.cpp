#include "core/kernels/cuda/emulation/stream_copies.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/kernels/cuda/launch_shape.h"

namespace specdec::cuda {
namespace {

struct Queued {
  std::function<void()> run;
  void* target = nullptr;
  const void* source = nullptr;
  size_t bytes = 0;

  void poison() const {
    constexpr int kPoison = 0xFF;
    if (bytes > 0) {
      std::memset(target, kPoison, bytes);
    }
  }
  bool reads(const void* memory, size_t count) const {
    const auto* begin = static_cast<const char*>(memory);
    const auto* own = static_cast<const char*>(source);
    return std::less<>()(own, begin + count) && std::less<>()(begin, own + bytes);
  }
};

struct Stream {
  std::deque<Queued> queued;
  int64_t done = 0;
  int64_t launches = 0;  ///< that it has waited for: all before this number

  int64_t end() const { return done + static_cast<int64_t>(queued.size()); }
  void run_to(int64_t place) {
    while (done < place) {
      const Queued next = std::move(queued.front());
      queued.pop_front();
      ++done;
      next.run();
    }
    for (const Queued& later : queued) {  // whose targets those before may have filled
      later.poison();
    }
  }
  /// Runs what reads memory that the next copy damages.
  void run_readers(const void* memory, size_t bytes) {
    const auto last = std::find_if(queued.rbegin(), queued.rend(),
                                   [&](const Queued& each) { return each.reads(memory, bytes); });
    run_to(done + (queued.rend() - last));
  }
};

struct Event {
  std::shared_ptr<Stream> stream;  ///< nullptr: the default one
  int64_t place = 0;               ///< of what was queued, or of launches
};

/// What all threads share.
struct Copies {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Stream>> streams;
  std::vector<Event> awaited;  ///< by the default stream
  int64_t launches = 0;
  std::map<uint64_t, int64_t> addresses;  ///< in arguments, with the launch that had them last

  void finish_awaited() {
    for (const Event& event : awaited) {
      event.stream->run_to(event.place);
    }
    awaited.clear();
  }
  /// When the event has come.
  void finish(const Event& event) {
    if (event.stream == nullptr) {
      finish_awaited();
    } else {
      event.stream->run_to(event.place);
    }
  }
  bool overtakes_launch(const Stream& stream, const void* memory, int64_t bytes) const {
    const auto begin = reinterpret_cast<uint64_t>(memory);
    for (auto i = addresses.lower_bound(begin);
         i != addresses.end() && i->first < begin + static_cast<uint64_t>(bytes); ++i) {
      if (i->second >= stream.launches) {
        return true;
      }
    }
    return false;
  }
};

Copies& copies() {
  static Copies all;
  return all;
}

}  // namespace

int create_stream(void** stream) {
  const auto made = std::make_shared<Stream>();
  const std::lock_guard lock(copies().mutex);
  copies().streams.emplace(made.get(), made);
  *stream = made.get();
  return 0;
}

int destroy_stream(void* stream) {
  const std::lock_guard lock(copies().mutex);
  const auto found = copies().streams.find(stream);
  if (found == copies().streams.end()) {
    return kInvalidValue;
  }
  found->second->run_to(found->second->end());
  copies().streams.erase(found);
  if (copies().streams.empty()) {
    copies().addresses.clear();
  }
  return 0;
}

int create_event(void** event) {
  *event = std::make_unique<Event>().release();
  return 0;
}

int destroy_event(void* event) {
  const std::unique_ptr<Event> destroyed(static_cast<Event*>(event));
  return 0;
}

int record_event(void* event, void* stream) {
  const std::lock_guard lock(copies().mutex);
  if (stream == nullptr) {
    *static_cast<Event*>(event) = {nullptr, copies().launches};
    return 0;
  }
  const auto found = copies().streams.find(stream);
  if (found == copies().streams.end()) {
    return kInvalidValue;
  }
  *static_cast<Event*>(event) = {found->second, found->second->end()};
  return 0;
}

int wait_for_event(void* stream, void* event) {
  const Event& awaited = *static_cast<const Event*>(event);
  const std::lock_guard lock(copies().mutex);
  if (stream == nullptr) {
    if (awaited.stream != nullptr) {
      copies().awaited.push_back(awaited);
    }
    return 0;
  }
  const auto found = copies().streams.find(stream);
  if (found == copies().streams.end()) {
    return kInvalidValue;
  }
  Stream& waiting = *found->second;
  if (awaited.stream == nullptr) {
    waiting.launches = std::max(waiting.launches, awaited.place);
  } else {
    waiting.queued.push_back({[awaited] { awaited.stream->run_to(awaited.place); }});
  }
  return 0;
}

int synchronize_event(void* event) {
  const std::lock_guard lock(copies().mutex);
  copies().finish(*static_cast<const Event*>(event));
  return 0;
}

int queue_copy(void* to, const void* from, int64_t bytes, void* stream) {
  const std::lock_guard lock(copies().mutex);
  const auto found = copies().streams.find(stream);
  if (found == copies().streams.end() || bytes < 0) {
    return kInvalidValue;
  }
  Stream& queue = *found->second;
  if (copies().overtakes_launch(queue, to, bytes) ||
      copies().overtakes_launch(queue, from, bytes)) {
    return kCopyOvertakesLaunch;
  }
  const auto size = static_cast<size_t>(bytes);
  queue.run_readers(to, size);
  queue.queued.push_back({[to, from, size] { std::memcpy(to, from, size); }, to, from, size});
  queue.queued.back().poison();
  return 0;
}

namespace emulation {

void begin_launch(const void* task, size_t bytes) {
  Copies& all = copies();
  const std::lock_guard lock(all.mutex);
  if (all.streams.empty()) {
    return;
  }
  all.finish_awaited();
  const auto* words = static_cast<const unsigned char*>(task);
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, words + i, sizeof(word));
    all.addresses[word] = all.launches;
  }
  ++all.launches;
}

int finish_stream(void* stream) {
  const std::lock_guard lock(copies().mutex);
  if (stream == nullptr) {
    copies().finish_awaited();
    return 0;
  }
  const auto found = copies().streams.find(stream);
  if (found == copies().streams.end()) {
    return kInvalidValue;
  }
  found->second->run_to(found->second->end());
  return 0;
}

}  // namespace emulation
}  // namespace specdec::cuda
