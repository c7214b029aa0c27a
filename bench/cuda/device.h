#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace specdec::cuda {

/// Ends the program, saying what failed, unless the error is none. `what`: for people.
void check(int error, const char* what);

/// Memory of the GPU; shared by copies.
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t bytes);
  template <class T>
  static DeviceArray of(const std::vector<T>& numbers) {
    DeviceArray array(numbers.size() * sizeof(T));
    array.upload(numbers.data(), numbers.size() * sizeof(T));
    return array;
  }

  void upload(const void* from, size_t bytes) const;
  std::vector<float> floats(size_t count) const;  ///< the first ones
  /// Fills the array with repetitions of `pattern`, to the end.
  void tile(const std::vector<std::byte>& pattern) const;

  template <class T = std::byte>
  T* data() const {
    return static_cast<T*>(memory_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> memory_;
  size_t bytes_ = 0;
};

/// The GPU that everything runs on.
struct Device {
  std::string name;
  int processors = 0;
  size_t memory_bytes = 0, l2_bytes = 0;
  int driver = 0, runtime = 0;       ///< CUDA versions, as cudaDriverGetVersion says
  double copy_bytes_per_second = 0;  ///< of a large copy on the device, read and written
};

/// The machine's device; nullptr where there is none, and why in `reason`.
std::unique_ptr<Device> find_device(std::string& reason);

struct Timing {
  double seconds;  ///< of one call: the median of some repetitions
  double spread;   ///< largest less smallest, over the median
};

/// Calls `call` with 0, 1, ... in a CUDA graph, which is replayed between events. `cycle`: calls
/// after which the arguments repeat; a multiple of it is in the graph.
Timing time_calls(int cycle, const std::function<void(int index, void* stream)>& call);

/// How many copies of so many bytes leave none of them in the cache from one use to the next.
int cold_copies(const Device& device, size_t bytes);

}  // namespace specdec::cuda
