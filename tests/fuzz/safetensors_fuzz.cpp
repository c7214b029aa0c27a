// Any bytes are either refused with WeightsError or give tensors that lie in the file.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/formats/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  try {
    std::map<std::string, std::string> metadata;
    const auto tensors = specdec::parse_safetensors(file, "fuzz", metadata);
    for (const specdec::TensorEntry& entry : tensors) {
      const bool inside = entry.bytes.empty() || (entry.bytes.data() >= file.data() &&
                                                  &entry.bytes.back() <= &file.back());
      int64_t bytes = specdec::dtype_bytes(entry.dtype);
      for (const int64_t length : entry.shape) {
        bytes *= length;
      }
      if (!inside || bytes != static_cast<int64_t>(entry.bytes.size())) {
        std::abort();
      }
    }
  } catch (const specdec::WeightsError&) {
    return 0;
  }
  return 0;
}
