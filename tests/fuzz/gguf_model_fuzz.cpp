// Any bytes are either refused with an Error, or become a model: what the metadata says is
// described, the tensors are those that it asks for, and memory is taken only for what the file
// holds.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  try {
    const auto file = std::make_shared<const specdec::GgufFile>(
        std::vector<std::byte>(bytes, bytes + size), "fuzz");
    specdec::load_model(file);
    specdec::load_model(file, {.dtype = at::kBFloat16});
  } catch (const specdec::Error&) {
    return 0;
  }
  return 0;
}
