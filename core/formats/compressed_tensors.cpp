#include "core/formats/compressed_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/formats/float_values.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

constexpr int64_t kWordBits = 32;
constexpr std::string_view kPackedName = ".weight_packed";
constexpr std::string_view kWeightName = ".weight";
/// What stands beside the codes of a module; of inputs, outputs and caches it is not needed.
constexpr std::array<std::string_view, 5> kSideNames = {
    ".weight_scale", ".weight_shape", ".weight_zero_point", ".input_scale", ".input_zero_point"};

bool ends_with(std::string_view name, std::string_view end) {
  return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
}

/// As many parts of so many as there are, the last one perhaps smaller; 0 = one part.
int64_t parts_of(int64_t size, int64_t part) { return part == 0 ? 1 : (size + part - 1) / part; }

template <class Word>
Word word_at(const TensorEntry& entry, int64_t i) {
  Word word;
  std::memcpy(&word, entry.bytes.data() + static_cast<size_t>(i) * sizeof(Word), sizeof(Word));
  return word;
}

/// The code that begins at a bit of a packed word, as a signed integer.
int64_t packed_code(uint32_t word, int64_t bit, int64_t bits) {
  const uint32_t mask = (1U << static_cast<unsigned>(bits)) - 1U;
  return int64_t{word >> static_cast<unsigned>(bit) & mask} - (int64_t{1} << (bits - 1));
}

bool is_code(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }

/// The codes of a row, as numbers.
void read_packed(const TensorEntry& codes, int64_t bits, int64_t row, std::span<float> out) {
  const int64_t words = codes.shape[1];
  const int64_t in_word = kWordBits / bits;
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const auto word = word_at<uint32_t>(codes, row * words + i / in_word);
    out[static_cast<size_t>(i)] = static_cast<float>(packed_code(word, i % in_word * bits, bits));
  }
}

void read_bytes(const TensorEntry& codes, const std::array<float, 256>& values, int64_t row,
                std::span<float> out) {
  const int64_t first = row * std::ssize(out);
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    out[static_cast<size_t>(i)] = values[word_at<uint8_t>(codes, first + i)];
  }
}

/// What the bytes of codes stand for.
std::array<float, 256> byte_values(Codes codes) {
  std::array<float, 256> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = codes == Codes::kFloat8 ? float8_value(static_cast<uint8_t>(i))
                                        : static_cast<float>(static_cast<int8_t>(i));
  }
  return values;
}

}  // namespace

CompressedTensors::CompressedTensors(std::shared_ptr<const TensorFiles> stored,
                                     const CompressionScheme& scheme)
    : stored_(std::move(stored)), scheme_(scheme) {
  for (const TensorEntry* entry : stored_->tensors()) {
    const std::string_view name = entry->name;
    if (ends_with(name, ".weight_g_idx")) {
      fail(*entry, "orders its groups by activations (actorder), which is not supported");
    }
    if (ends_with(name, kPackedName)) {
      add(*entry, std::string(name.substr(0, name.size() - kPackedName.size())));
    } else if (ends_with(name, kWeightName) && is_code(entry->dtype)) {
      add(*entry, std::string(name.substr(0, name.size() - kWeightName.size())));
    } else if (std::none_of(kSideNames.begin(), kSideNames.end(),
                            [name](std::string_view end) { return ends_with(name, end); })) {
      plain_.push_back(entry);
    }
  }
}

void CompressedTensors::fail(const TensorEntry& entry, const std::string& problem) const {
  throw WeightsError(fmt::format("{}: tensor '{}' {}.", folder().string(), entry.name, problem));
}

void CompressedTensors::add(const TensorEntry& codes, const std::string& module) {
  const bool packed = ends_with(codes.name, kPackedName);
  const DType wanted = scheme_.codes == Codes::kPacked ? DType::kI32
                       : scheme_.codes == Codes::kInt8 ? DType::kI8
                                                       : DType::kF8E4M3;
  if (packed != (scheme_.codes == Codes::kPacked) || codes.dtype != wanted) {
    fail(codes, fmt::format("has dtype {}, but config.json's quantization_config speaks of {}{}",
                            dtype_name(codes.dtype), dtype_name(wanted),
                            wanted == DType::kI32 ? " words in 'weight_packed'" : ""));
  }
  Matrix matrix;
  matrix.codes = &codes;
  matrix.scales = stored_->find(module + ".weight_scale");
  matrix.zeros = scheme_.symmetric ? nullptr : stored_->find(module + ".weight_zero_point");
  matrix.values.name = module + std::string(kWeightName);
  matrix.values.dtype = DType::kF32;
  matrix.values.shape = packed ? read_shape(module) : codes.shape;
  check(matrix);
  const std::string name = matrix.values.name;
  if (packed && stored_->find(name) != nullptr) {
    fail(codes, fmt::format("is there beside '{}', of which it is the compressed form", name));
  }
  matrices_.emplace(name, std::move(matrix));
}

std::vector<int64_t> CompressedTensors::read_shape(const std::string& module) const {
  const std::string name = module + ".weight_shape";
  const TensorEntry* entry = stored_->find(name);
  if (entry == nullptr) {
    throw WeightsError(fmt::format("{}: tensor '{}' is missing.", folder().string(), name));
  }
  const bool wide = entry->dtype == DType::kI64;
  if ((!wide && entry->dtype != DType::kI32) || entry->shape != std::vector<int64_t>{2}) {
    fail(*entry, "should hold two integers");
  }
  std::vector<int64_t> shape;
  for (const int64_t i : {0, 1}) {
    shape.push_back(wide ? word_at<int64_t>(*entry, i) : word_at<int32_t>(*entry, i));
  }
  return shape;
}

int64_t CompressedTensors::scale_rows(const Matrix& matrix) const {
  return parts_of(matrix.values.shape[0], scheme_.rows_per_scale);
}

int64_t CompressedTensors::scale_columns(const Matrix& matrix) const {
  return parts_of(matrix.values.shape[1], scheme_.columns_per_scale);
}

void CompressedTensors::check(const Matrix& matrix) const {
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  const auto& shape = matrix.values.shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > kMaxSize ||
      shape[1] > kMaxSize) {
    fail(*matrix.codes, fmt::format("is of a matrix of shape [{}], which is not supported",
                                    fmt::join(shape, ", ")));
  }
  const auto require = [&](const TensorEntry* entry, const char* part,
                           const std::vector<int64_t>& wanted) {
    if (entry == nullptr) {
      fail(*matrix.codes, fmt::format("has no {} beside it", part));
    }
    TensorEntry all = *entry;
    std::erase(all.shape, 1);
    std::vector<int64_t> sizes = wanted;
    std::erase(sizes, 1);
    if (all.shape != sizes) {
      fail(*entry, fmt::format("has shape [{}], but for a matrix [{}] it should be [{}]",
                               fmt::join(entry->shape, ", "), fmt::join(shape, ", "),
                               fmt::join(wanted, ", ")));
    }
  };
  const auto words = [&](int64_t values) {
    return (values * scheme_.bits + kWordBits - 1) / kWordBits;
  };
  const bool packed = scheme_.codes == Codes::kPacked;
  if (packed && matrix.codes->shape != std::vector<int64_t>{shape[0], words(shape[1])}) {
    fail(*matrix.codes,
         fmt::format("has shape [{}], but packs {} bits of each weight of a matrix [{}]",
                     fmt::join(matrix.codes->shape, ", "), scheme_.bits, fmt::join(shape, ", ")));
  }
  require(matrix.scales, "weight_scale", {scale_rows(matrix), scale_columns(matrix)});
  const DType type = matrix.scales->dtype;
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) {
    fail(*matrix.scales,
         fmt::format("has dtype {}; it should be one of F32, F16, BF16", dtype_name(type)));
  }
  if (scheme_.symmetric) {
    return;
  }
  require(matrix.zeros, "weight_zero_point",
          {packed ? words(shape[0]) : shape[0], scale_columns(matrix)});
  if (matrix.zeros->dtype != matrix.codes->dtype) {
    fail(*matrix.zeros,
         fmt::format("has dtype {}; it should be {} as the codes are",
                     dtype_name(matrix.zeros->dtype), dtype_name(matrix.codes->dtype)));
  }
}

int64_t CompressedTensors::zero_point(const Matrix& matrix, int64_t row, int64_t group) const {
  if (matrix.zeros == nullptr) {
    return 0;
  }
  const int64_t groups = scale_columns(matrix);
  if (scheme_.codes == Codes::kInt8) {
    return word_at<int8_t>(*matrix.zeros, row * groups + group);
  }
  const int64_t bit = row * scheme_.bits;  // packed along the rows
  return packed_code(word_at<uint32_t>(*matrix.zeros, bit / kWordBits * groups + group),
                     bit % kWordBits, scheme_.bits);
}

void CompressedTensors::scale_row(const Matrix& matrix, const std::vector<float>& scales,
                                  int64_t row, std::span<float> values) const {
  const int64_t rows = scheme_.rows_per_scale;
  const int64_t parts = scale_columns(matrix);
  const auto columns = static_cast<size_t>(scheme_.columns_per_scale);
  const size_t size = columns == 0 ? values.size() : columns;
  for (int64_t part = 0; part < parts; ++part) {
    const float scale = scales[static_cast<size_t>((rows == 0 ? 0 : row / rows) * parts + part)];
    const auto zero = static_cast<float>(zero_point(matrix, row, part));
    const size_t first = static_cast<size_t>(part) * size;
    for (float& value : values.subspan(first, std::min(size, values.size() - first))) {
      value = (value - zero) * scale;
    }
  }
}

void CompressedTensors::decode(Matrix& matrix) const {
  const auto columns = static_cast<size_t>(matrix.values.shape[1]);
  const auto count = static_cast<size_t>(matrix.values.shape[0]) * columns;
  matrix.memory = std::make_unique_for_overwrite<float[]>(count);
  const std::vector<float> scales = float_values(*matrix.scales);
  const std::array<float, 256> bytes = byte_values(scheme_.codes);
  for (int64_t row = 0; row < matrix.values.shape[0]; ++row) {
    const std::span<float> values(matrix.memory.get() + static_cast<size_t>(row) * columns,
                                  columns);
    if (scheme_.codes == Codes::kPacked) {
      read_packed(*matrix.codes, scheme_.bits, row, values);
    } else {
      read_bytes(*matrix.codes, bytes, row, values);
    }
    scale_row(matrix, scales, row, values);
  }
  matrix.values.bytes = std::as_bytes(std::span(matrix.memory.get(), count));
  stored_->release(*matrix.codes);
}

const TensorEntry* CompressedTensors::find(std::string_view name) const {
  const auto found = matrices_.find(name);
  if (found == matrices_.end()) {
    return stored_->find(name);
  }
  const std::lock_guard lock(mutex_);
  if (found->second.memory == nullptr) {
    decode(found->second);
  }
  return &found->second.values;
}

std::vector<const TensorEntry*> CompressedTensors::tensors() const {
  std::vector<const TensorEntry*> all = plain_;
  for (const auto& [name, matrix] : matrices_) {
    all.push_back(&matrix.values);
  }
  return all;
}

void CompressedTensors::release(const TensorEntry& entry, size_t begin, size_t size) const {
  if (matrices_.count(entry.name) == 0) {
    stored_->release(entry, begin, size);
  }
}

std::vector<std::pair<std::string, std::string>> CompressedTensors::missing() const {
  return stored_->missing();
}

std::string CompressedTensors::stored_name(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? stored_->stored_name(name) : found->second.codes->name;
}

}  // namespace specdec
