#include "core/formats/gguf/gguf_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/error.h"

namespace specdec {
namespace {

constexpr uint64_t kAlignment = 32;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The numbers of types in the file.
enum class EntryType : uint32_t {
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kText = 8,
  kArray = 9,
  kI64 = 11
};

uint32_t tensor_type_number(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ80:
      return 8;
    case DType::kBF16:
      return 30;
    default:
      break;
  }
  SPECDEC_CHECK(false, "GGUF tensors are written as F32, F16, BF16 or Q8_0, not {}",
                dtype_name(dtype));
  return 0;
}

/// Everything before the tensors' bytes.
class GgufHeader {
 public:
  GgufHeader(const GgufEntries& metadata, const std::vector<TensorLayout>& tensors) {
    bytes_ += "GGUF";
    number<uint32_t>(3);
    number<uint64_t>(tensors.size());
    number<uint64_t>(metadata.size());
    for (const auto& [key, value] : metadata) {
      text(key);
      std::visit([this](const auto& one) { entry(one); }, value);
    }
    uint64_t offset = 0;
    for (const TensorLayout& tensor : tensors) {
      describe(tensor, offset);
      offset += aligned(tensor.bytes());
    }
    bytes_.resize(aligned(bytes_.size()), '\0');
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  void number(T value) {
    std::array<char, sizeof(T)> raw{};
    std::memcpy(raw.data(), &value, sizeof(T));
    bytes_.append(raw.data(), raw.size());
  }
  void text(const std::string& value) {
    number<uint64_t>(value.size());
    bytes_ += value;
  }
  void type(EntryType kind) { number(static_cast<uint32_t>(kind)); }

  void entry(int64_t value) {
    if (value >= 0 && value <= UINT32_MAX) {
      type(EntryType::kU32);
      number(static_cast<uint32_t>(value));
    } else {
      type(EntryType::kI64);
      number(value);
    }
  }
  void entry(double value) {
    type(EntryType::kF32);
    number(static_cast<float>(value));
  }
  void entry(bool value) {
    type(EntryType::kBool);
    number<uint8_t>(value ? 1 : 0);
  }
  void entry(const std::string& value) {
    type(EntryType::kText);
    text(value);
  }
  template <class T>
  void entry(const std::vector<T>& list) {
    type(EntryType::kArray);
    type(std::is_same_v<T, int64_t> ? EntryType::kI32
         : std::is_same_v<T, float> ? EntryType::kF32
         : std::is_same_v<T, bool>  ? EntryType::kBool
                                    : EntryType::kText);
    number<uint64_t>(list.size());
    for (const auto& value : list) {
      if constexpr (std::is_same_v<T, std::string>) {
        text(value);
      } else if constexpr (std::is_same_v<T, int64_t>) {
        number(static_cast<int32_t>(value));
      } else if constexpr (std::is_same_v<T, float>) {
        number(value);
      } else {
        number<uint8_t>(value ? 1 : 0);
      }
    }
  }

  void describe(const TensorLayout& tensor, uint64_t offset) {
    text(tensor.name);
    number(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      number(static_cast<uint64_t>(*size));
    }
    number(tensor_type_number(tensor.dtype));
    number(offset);
  }

  std::string bytes_;
};

GgufValue as_read(const GgufEntry& entry) {
  return std::visit(
      [](const auto& value) -> GgufValue {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, double>) {
          return static_cast<double>(static_cast<float>(value));
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          return std::vector<int64_t>(value.begin(), value.end());
        } else {
          return value;
        }
      },
      entry);
}

}  // namespace

GgufContent written_content(const GgufEntries& metadata, const std::vector<TensorLayout>& tensors,
                            const std::string& where) {
  GgufContent content{.metadata = GgufMetadata(where), .tensors = {}};
  for (const auto& [key, entry] : metadata) {
    content.metadata.add(key, as_read(entry));
  }
  for (const TensorLayout& tensor : tensors) {
    content.tensors.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = {}});
  }
  return content;
}

GgufFileWriter::GgufFileWriter(const std::filesystem::path& path, const GgufEntries& metadata,
                               std::vector<TensorLayout> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  file_.write(GgufHeader(metadata, tensors_).bytes());
}

void GgufFileWriter::write(std::span<const std::byte> bytes) {
  SPECDEC_CHECK(tensor_ < tensors_.size(), "GgufFileWriter: more bytes than the tensors have");
  written_ += bytes.size();
  SPECDEC_CHECK(written_ <= tensors_[tensor_].bytes(), "{}: more bytes than its shape says",
                tensors_[tensor_].name);
  file_.write(bytes);
  if (written_ == tensors_[tensor_].bytes()) {
    pad();
    ++tensor_;
    written_ = 0;
  }
}

void GgufFileWriter::pad() {
  constexpr std::array<std::byte, kAlignment> kZeros{};
  file_.write(std::span(kZeros).first(aligned(written_) - written_));
}

void GgufFileWriter::commit() {
  SPECDEC_CHECK(tensor_ == tensors_.size(), "GgufFileWriter: {} of {} tensors are written", tensor_,
                tensors_.size());
  file_.commit();
}

}  // namespace specdec
