#include "core/formats/compressed_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

constexpr std::string_view kPackedName = ".weight_packed";
constexpr std::string_view kWeightName = ".weight";
constexpr std::string_view kOrderName = ".weight_g_idx";
/// What stands beside the codes of a module; of inputs, outputs and caches it is not needed.
constexpr std::array<std::string_view, 14> kSideNames = {
    ".weight_scale", ".weight_scale_inv", ".weight_shape", ".weight_zero_point", ".weight_g_idx",
    ".input_scale",  ".input_zero_point", ".output_scale", ".output_zero_point", ".k_scale",
    ".v_scale",      ".q_scale",          ".kv_scale",     ".activation_scale"};

bool ends_with(std::string_view name, std::string_view end) {
  return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
}

bool is_side_name(std::string_view name) {
  return std::any_of(kSideNames.begin(), kSideNames.end(),
                     [name](std::string_view end) { return ends_with(name, end); });
}

int64_t integer_at(const TensorEntry& entry, int64_t i) {
  const std::byte* from = entry.bytes.data() + i * dtype_bytes(entry.dtype);
  if (entry.dtype == DType::kI64) {
    int64_t wide = 0;
    std::memcpy(&wide, from, sizeof(wide));
    return wide;
  }
  int32_t narrow = 0;
  std::memcpy(&narrow, from, sizeof(narrow));
  return narrow;
}

bool is_code(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }

DType code_type(Codes codes) {
  return codes == Codes::kPacked ? DType::kI32
         : codes == Codes::kInt8 ? DType::kI8
                                 : DType::kF8E4M3;
}

size_t value_bytes(const TensorEntry& values) {
  const int64_t count = values.shape[0] * values.shape[1];
  return static_cast<size_t>(count / block_values(values.dtype) * dtype_bytes(values.dtype));
}

}  // namespace

CompressedTensors::CompressedTensors(std::shared_ptr<const TensorFiles> stored,
                                     const CompressionScheme& scheme)
    : stored_(std::move(stored)), scheme_(scheme) {
  for (const TensorEntry* entry : stored_->tensors()) {
    const std::string_view name = entry->name;
    if (ends_with(name, kPackedName)) {
      add(*entry, std::string(name.substr(0, name.size() - kPackedName.size())));
    } else if (ends_with(name, kWeightName) && is_code(entry->dtype)) {
      add(*entry, std::string(name.substr(0, name.size() - kWeightName.size())));
    } else if (!is_side_name(name)) {
      plain_.push_back(entry);
    }
  }
}

void CompressedTensors::fail(const TensorEntry& entry, const std::string& problem) const {
  throw WeightsError(fmt::format("{}: tensor '{}' {}.", folder().string(), entry.name, problem));
}

void CompressedTensors::add(const TensorEntry& codes, const std::string& module) {
  const bool packed = ends_with(codes.name, kPackedName);
  const DType wanted = code_type(scheme_.codes);
  if (packed != (scheme_.codes == Codes::kPacked) || codes.dtype != wanted) {
    fail(codes, fmt::format("has dtype {}, but config.json's quantization_config speaks of {}{}",
                            dtype_name(codes.dtype), dtype_name(wanted),
                            wanted == DType::kI32 ? " words in 'weight_packed'" : ""));
  }
  const std::vector<int64_t> shape = packed ? read_shape(module) : codes.shape;
  Matrix matrix;
  matrix.stored.scheme = scheme_;
  matrix.stored.codes = &codes;
  for (const char* name : {".weight_scale_inv", ".weight_scale"}) {
    const TensorEntry* scales = stored_->find(module + name);
    matrix.stored.scales = scales == nullptr ? matrix.stored.scales : scales;
  }
  matrix.stored.zeros = scheme_.symmetric ? nullptr : stored_->find(module + ".weight_zero_point");
  matrix.stored.rows = shape.empty() ? 0 : shape[0];
  matrix.stored.columns = shape.size() == 2 ? shape[1] : 0;
  check(matrix.stored);
  if (const TensorEntry* order = stored_->find(module + std::string(kOrderName))) {
    check_order(*order, matrix.stored);
  }
  matrix.values.name = module + std::string(kWeightName);
  matrix.values.dtype = block_type(matrix.stored);
  matrix.values.shape = shape;
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
  if ((entry->dtype != DType::kI64 && entry->dtype != DType::kI32) ||
      entry->shape != std::vector<int64_t>{2}) {
    fail(*entry, "should hold two integers");
  }
  return {integer_at(*entry, 0), integer_at(*entry, 1)};
}

void CompressedTensors::check_order(const TensorEntry& entry,
                                    const CompressedMatrix& matrix) const {
  if (entry.dtype != DType::kI32 || entry.shape != std::vector<int64_t>{matrix.columns}) {
    fail(entry, fmt::format("should hold {} integers of type I32", matrix.columns));
  }
  const int64_t group = scheme_.columns_per_scale == 0 ? matrix.columns : scheme_.columns_per_scale;
  for (int64_t i = 0; i < matrix.columns; ++i) {
    // -1 is what the library writes before an order is known.
    if (const int64_t place = integer_at(entry, i); place != -1 && place != i / group) {
      fail(entry,
           "orders its groups by activations (actorder: group), which is not supported; use a "
           "checkpoint with actorder: weight, or without");
    }
  }
}

void CompressedTensors::check(const CompressedMatrix& matrix) const {
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  constexpr int64_t kBitsOfWord = 32;
  const std::vector<int64_t> shape = {matrix.rows, matrix.columns};
  if (matrix.rows < 1 || matrix.columns < 1 || matrix.rows > kMaxSize ||
      matrix.columns > kMaxSize) {
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
    return (values * scheme_.bits + kBitsOfWord - 1) / kBitsOfWord;
  };
  const bool packed = scheme_.codes == Codes::kPacked;
  if (packed && matrix.codes->shape != std::vector<int64_t>{shape[0], words(shape[1])}) {
    fail(*matrix.codes,
         fmt::format("has shape [{}], but packs {} bits of each weight of a matrix [{}]",
                     fmt::join(matrix.codes->shape, ", "), scheme_.bits, fmt::join(shape, ", ")));
  }
  require(matrix.scales, "weight_scale", {matrix.scale_rows(), matrix.scale_columns()});
  const DType type = matrix.scales->dtype;
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) {
    fail(*matrix.scales,
         fmt::format("has dtype {}; it should be one of F32, F16, BF16", dtype_name(type)));
  }
  if (scheme_.symmetric) {
    return;
  }
  require(matrix.zeros, "weight_zero_point",
          {packed ? words(shape[0]) : shape[0], matrix.scale_columns()});
  if (matrix.zeros->dtype != matrix.codes->dtype) {
    fail(*matrix.zeros,
         fmt::format("has dtype {}; it should be {} as the codes are",
                     dtype_name(matrix.zeros->dtype), dtype_name(matrix.codes->dtype)));
  }
}

const TensorEntry* CompressedTensors::find(std::string_view name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? stored_->find(name) : &found->second.values;
}

std::vector<const TensorEntry*> CompressedTensors::tensors() const {
  std::vector<const TensorEntry*> all = plain_;
  for (const auto& [name, matrix] : matrices_) {
    all.push_back(&matrix.values);
  }
  return all;
}

void CompressedTensors::provide(const TensorEntry& entry) const {
  const auto found = matrices_.find(entry.name);
  if (found == matrices_.end()) {
    return;
  }
  Matrix& matrix = found->second;
  const std::lock_guard lock(mutex_);
  if (matrix.memory == nullptr) {
    const size_t size = value_bytes(matrix.values);
    matrix.memory = std::make_unique_for_overwrite<std::byte[]>(size);
    write_values(matrix.stored, {matrix.memory.get(), size});
    matrix.values.bytes = {matrix.memory.get(), size};
    stored_->release(*matrix.stored.codes);
  }
}

void CompressedTensors::release(const TensorEntry& entry, size_t begin, size_t size) const {
  const auto found = matrices_.find(entry.name);
  if (found == matrices_.end()) {
    return stored_->release(entry, begin, size);
  }
  if (begin == 0 && size == SIZE_MAX) {
    const std::lock_guard lock(mutex_);
    found->second.values.bytes = {};
    found->second.memory.reset();
  }
}

std::vector<std::pair<std::string, std::string>> CompressedTensors::missing() const {
  return stored_->missing();
}

std::string CompressedTensors::stored_name(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? stored_->stored_name(name) : found->second.stored.codes->name;
}

}  // namespace specdec
