// Any bytes are either refused with WeightsError, or give tensors that lie in the file and whose
// blocks can be read; and the tokenizer that the metadata describe is refused or encodes a text.
// Bytes that begin with "SPLIT" and a length are the two files of a split model.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/error.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/gguf/gguf_blocks.h"
#include "core/tokenizers/gguf_tokenizer.h"

namespace {

using Bytes = std::span<const std::byte>;

void check_inside(const specdec::TensorEntry& entry, Bytes file) {
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

void read_blocks(const specdec::TensorEntry& entry) {
  if (specdec::is_block(entry.dtype)) {
    const auto blocks =
        static_cast<int64_t>(entry.bytes.size()) / specdec::dtype_bytes(entry.dtype);
    std::vector<float> values(static_cast<size_t>(blocks * specdec::block_values(entry.dtype)));
    specdec::dequantize(entry.dtype, entry.bytes.data(), std::ssize(values), values.data());
  }
}

void read_file(Bytes file) {
  const specdec::GgufContent content = specdec::parse_gguf(file, "fuzz");
  for (const specdec::TensorEntry& entry : content.tensors) {
    check_inside(entry, file);
    read_blocks(entry);
  }
  const auto tokenizer = specdec::gguf_tokenizer(content.metadata);
  tokenizer->decode(tokenizer->encode("aab ab\xFF 12\n<turn>e\xCC\x81  "));
}

class SplitFolder {
 public:
  SplitFolder() { std::filesystem::create_directories(path_); }
  ~SplitFolder() { std::filesystem::remove_all(path_); }
  SplitFolder(const SplitFolder&) = delete;
  SplitFolder& operator=(const SplitFolder&) = delete;

  std::filesystem::path write(const char* name, Bytes bytes) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return path_ / name;
  }

 private:
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("specdec-split-" + std::to_string(getpid()));
};

void read_split(Bytes both) {
  static const SplitFolder folder;
  uint16_t length = 0;
  if (both.size() < sizeof(length)) {
    return;
  }
  std::memcpy(&length, both.data(), sizeof(length));
  both = both.subspan(sizeof(length));
  const Bytes first = both.first(std::min<size_t>(length, both.size()));
  const auto path = folder.write("m-00001-of-00002.gguf", first);
  folder.write("m-00002-of-00002.gguf", both.subspan(first.size()));
  const specdec::GgufFile file(path);
  for (const specdec::TensorEntry& entry : file.tensors()) {
    read_blocks(entry);
    file.release(entry.bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  constexpr std::string_view kSplit = "SPLIT";
  const bool split = size > kSplit.size() && std::memcmp(data, kSplit.data(), kSplit.size()) == 0;
  try {
    split ? read_split(bytes.subspan(kSplit.size())) : read_file(bytes);
  } catch (const specdec::WeightsError&) {
    return 0;
  }
  return 0;
}
