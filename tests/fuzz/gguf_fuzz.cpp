// Any bytes are either refused with WeightsError, or give tensors that lie in the file; and the
// tokenizer that the metadata describe is refused or encodes a text.
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "core/formats/gguf.h"
#include "core/gguf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const specdec::GgufContent content = specdec::parse_gguf(file, "fuzz");
    for (const specdec::TensorEntry& entry : content.tensors) {
      int64_t bytes = specdec::dtype_bytes(entry.dtype);
      for (const int64_t length : entry.shape) {
        bytes *= length;
      }
      const bool inside = !entry.bytes.empty() && entry.bytes.data() >= file.data() &&
                          &entry.bytes.back() <= &file.back();
      if (!inside ||
          bytes / specdec::block_values(entry.dtype) != static_cast<int64_t>(entry.bytes.size())) {
        std::abort();
      }
    }
    const auto tokenizer = specdec::gguf_tokenizer(content.metadata);
    tokenizer->decode(tokenizer->encode("aab ab\xFF 12\n<turn>e\xCC\x81  "));
  } catch (const specdec::WeightsError&) {
    return 0;
  }
  return 0;
}
