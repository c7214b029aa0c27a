#include "core/formats/quantised/compressed_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/formats/finite_values.h"
#include "core/formats/float_values.h"
#include "core/formats/quantised/bitsandbytes.h"
#include "core/formats/quantised/column_packed.h"
#include "core/formats/quantised/matrix_checks.h"
#include "core/formats/quantised/mlx_matrix.h"
#include "core/formats/quantised/packed_matrix.h"
#include "core/formats/quantised/torchao_matrix.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;
using WholeScale = CompressionScheme::WholeScale;

constexpr std::string_view kPackedEnd = "_packed";
constexpr std::string_view kColumnEnd = ".qweight";
/// What stands beside the codes of a module; of inputs, outputs and caches it is not needed.
constexpr std::array<std::string_view, 39> kSideEnds = {".weight_scale",
                                                        ".qzeros",
                                                        ".scales",
                                                        ".biases",
                                                        ".g_idx",
                                                        ".weight_global_scale",
                                                        ".weight_scale_2",
                                                        ".input_global_scale",
                                                        ".output_global_scale",
                                                        ".input_scale_2",
                                                        ".weight_scale_inv",
                                                        ".weight_shape",
                                                        ".weight_zero_point",
                                                        ".weight_g_idx",
                                                        "_proj_scale",
                                                        "_proj_scale_inv",
                                                        "_proj_shape",
                                                        "_proj_zero_point",
                                                        "_proj_g_idx",
                                                        "_proj_activation_scale",
                                                        "_proj_input_scale",
                                                        ".input_scale",
                                                        ".input_zero_point",
                                                        ".output_scale",
                                                        ".output_zero_point",
                                                        ".k_scale",
                                                        ".v_scale",
                                                        ".q_scale",
                                                        ".kv_scale",
                                                        ".activation_scale",
                                                        ".prob_scale",
                                                        ".weight.absmax",
                                                        ".weight.quant_map",
                                                        ".weight.nested_absmax",
                                                        ".weight.nested_quant_map",
                                                        ".weight.quant_state.bitsandbytes__nf4",
                                                        ".weight.quant_state.bitsandbytes__fp4",
                                                        ".SCB",
                                                        ".weight_format"};

bool ends_with(std::string_view name, std::string_view end) {
  return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
}

bool is_side_name(std::string_view name) {
  return std::any_of(kSideEnds.begin(), kSideEnds.end(),
                     [name](std::string_view end) { return ends_with(name, end); });
}

bool is_code(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kU8;
}

DType code_type(Codes codes) {
  switch (codes) {
    case Codes::kPacked:
    case Codes::kGptq:
    case Codes::kAwq:
    case Codes::kMlx:
    case Codes::kMlxFloat4:
    case Codes::kMlxFloat8:
      return DType::kI32;
    case Codes::kInt8:
    case Codes::kRows8:
      return DType::kI8;
    case Codes::kFloat4:
    case Codes::kBlocks4:
      return DType::kU8;
    default:
      return DType::kF8E4M3;
  }
}

/// What a config.json says that the codes are, for complaints.
std::string code_text(const CompressionScheme& scheme) {
  return fmt::format("{}{}", dtype_name(code_type(scheme.codes)),
                     scheme.codes == Codes::kPacked ? " words in 'weight_packed'"
                     : is_column_packed(scheme)     ? " words in 'qweight'"
                     : is_mlx(scheme)               ? " words in 'weight'"
                                                    : "");
}

/// Whether codes stand in NAME_packed; else in NAME itself.
bool stands_packed(const CompressionScheme& scheme) {
  return scheme.codes == Codes::kPacked || is_column_packed(scheme) ||
         (scheme.codes == Codes::kFloat4 && scheme.whole_scale != WholeScale::kMultiplies);
}

size_t value_bytes(const TensorEntry& values) {
  const int64_t count =
      std::accumulate(values.shape.begin(), values.shape.end(), int64_t{1}, std::multiplies<>());
  return static_cast<size_t>(count / block_values(values.dtype) * dtype_bytes(values.dtype));
}

/// "module.weight" -> "module"; a stack of experts has its own name.
std::string_view module_of(std::string_view name) {
  constexpr std::string_view kWeightEnd = ".weight";
  return ends_with(name, kWeightEnd) ? name.substr(0, name.size() - kWeightEnd.size()) : name;
}

}  // namespace

CompressedTensors::CompressedTensors(std::shared_ptr<const TensorFiles> stored,
                                     CompressionSchemes schemes)
    : stored_(std::move(stored)), schemes_(std::move(schemes)) {
  if (const CompressionScheme* of_all = schemes_.find("");
      of_all != nullptr && is_torchao(*of_all)) {
    add_torchao();
    return;
  }
  for (const TensorEntry* entry : stored_->tensors()) {
    if (const std::string name = matrix_of(*entry); !name.empty()) {
      find_scheme(*entry, name);
    } else if (!is_side_name(entry->name) && !is_idle_bias(*entry)) {
      plain_.push_back(entry);
    }
  }
}

bool CompressedTensors::is_idle_bias(const TensorEntry& entry) const {
  const std::string module = entry.name.substr(0, entry.name.rfind('.'));
  const bool plain =
      entry.dtype == DType::kF16 || entry.dtype == DType::kBF16 || entry.dtype == DType::kF32;
  if (!plain || entry.name != module + ".bias" ||
      stored_->find(module + std::string(kColumnEnd)) == nullptr) {
    return false;
  }
  const std::vector<float> values = float_values(entry);
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0.0F; });
}

void CompressedTensors::fail(const TensorEntry& entry, const std::string& problem) const {
  fail_tensor(*stored_, entry, problem);
}

std::string CompressedTensors::matrix_of(const TensorEntry& entry) const {
  if (ends_with(entry.name, kColumnEnd)) {
    return entry.name.substr(0, entry.name.size() - kColumnEnd.size()) + ".weight";
  }
  if (ends_with(entry.name, kPackedEnd)) {
    return entry.name.substr(0, entry.name.size() - kPackedEnd.size());
  }
  const bool is_weight = ends_with(entry.name, ".weight");
  const bool is_matrix = is_weight || (entry.shape.size() == 3 && !is_side_name(entry.name));
  const bool is_words = is_weight && entry.dtype == DType::kI32;  // MLX's
  return is_words || (is_matrix && is_code(entry.dtype)) ? entry.name : "";
}

void CompressedTensors::add_torchao() {
  const TorchaoMatrices described = describe_torchao(*stored_);
  rounds_activations_ = described.rounds_activations;
  refused_.insert(described.refused.begin(), described.refused.end());
  for (const auto& [name, matrix] : described.read) {
    try {
      add(name, matrix);
    } catch (const WeightsError& error) {  // as in find_scheme
      refused_.emplace(name, error.what());
    }
  }
  for (const TensorEntry* entry : stored_->tensors()) {
    if (!matrices_.contains(torchao_matrix_of(entry->name, described))) {
      plain_.push_back(entry);
    }
  }
}

void CompressedTensors::find_scheme(const TensorEntry& codes, const std::string& name) {
  try {
    const CompressionScheme* scheme = schemes_.find(module_of(name));
    if (scheme == nullptr) {
      fail(codes,
           "is compressed, but no group of quantization_config: config_groups has its module among "
           "its targets");
    }
    if (!scheme->mistake.empty()) {
      throw WeightsError(scheme->mistake);
    }
    add(name, describe(codes, name, *scheme));
  } catch (const WeightsError& error) {  // said where the matrix is read
    refused_.emplace(name, error.what());
    plain_.push_back(&codes);
  }
}

void CompressedTensors::add(const std::string& name, const CompressedMatrix& stored) {
  Matrix matrix;
  matrix.stored = stored;
  matrix.values.name = name;
  matrix.values.dtype = block_type(matrix.stored);
  matrix.values.shape = {matrix.stored.rows, matrix.stored.columns};
  if (matrix.stored.stacked > 0) {
    matrix.values.shape.insert(matrix.values.shape.begin(), matrix.stored.stacked);
  }
  if (stored.codes->name != name && stored_->find(name) != nullptr) {
    fail(*stored.codes,
         fmt::format("is there beside '{}', of which it is the compressed form", name));
  }
  matrices_.emplace(name, std::move(matrix));
}

CompressedMatrix CompressedTensors::describe(const TensorEntry& codes, const std::string& name,
                                             const CompressionScheme& scheme) const {
  const bool packed = codes.name != name;
  if (packed != stands_packed(scheme) || codes.dtype != code_type(scheme.codes) ||
      ends_with(codes.name, kColumnEnd) != is_column_packed(scheme)) {
    fail(codes, fmt::format("has dtype {}, but config.json's quantization_config speaks of {}",
                            dtype_name(codes.dtype), code_text(scheme)));
  }
  if (is_column_packed(scheme)) {
    return describe_columns(*stored_, codes, std::string(module_of(name)), scheme);
  }
  if (is_bitsandbytes(scheme)) {
    return describe_bitsandbytes(*stored_, codes, scheme);
  }
  if (is_mlx(scheme)) {
    return describe_mlx(*stored_, codes, std::string(module_of(name)), scheme);
  }
  return describe_packed(*stored_, codes, name, scheme);
}

const TensorEntry* CompressedTensors::find(std::string_view name) const {
  if (const auto refused = refused_.find(name); refused != refused_.end()) {
    throw WeightsError(refused->second);
  }
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

void CompressedTensors::check_scales(const CompressedMatrix& matrix) const {
  for (const TensorEntry* entry : {matrix.scales, matrix.minima, matrix.whole, matrix.factors}) {
    const auto found =
        entry == nullptr ? std::nullopt : first_not_finite(entry->dtype, entry->bytes);
    if (found) {
      fail(*entry,
           fmt::format("holds {} at value {}: the file is damaged. Download it again, or use "
                       "another checkpoint",
                       found->is_nan ? "NaN" : "infinity", found->value));
    }
  }
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
    check_scales(matrix.stored);
    matrix.memory = std::make_unique_for_overwrite<std::byte[]>(size);
    try {
      write_values(matrix.stored, matrix.values.dtype, {matrix.memory.get(), size});
    } catch (const WeightsError& error) {
      matrix.memory.reset();
      throw WeightsError(fmt::format("{}: {}", folder().string(), error.what()));
    }
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

std::vector<std::string> CompressedTensors::notes() const {
  std::vector<std::string> absent;
  for (const std::string& name : schemes_.names()) {
    const CompressionScheme* scheme = schemes_.find(name);
    if (is_mlx(*scheme) && stored_->find(name + ".weight") == nullptr) {
      absent.push_back(name);
    }
  }
  std::vector<std::string> notes;
  if (rounds_activations_) {
    notes.emplace_back(kRoundedActivations);
  }
  if (!absent.empty()) {
    notes.push_back(
        fmt::format("quantization says how {} modules are stored that the files do not hold, such "
                    "as '{}': that is left out.",
                    absent.size(), absent.front()));
  }
  return notes;
}

std::vector<std::pair<std::string, std::string>> CompressedTensors::missing() const {
  return stored_->missing();
}

std::string CompressedTensors::stored_name(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? stored_->stored_name(name) : found->second.stored.codes->name;
}

}  // namespace specdec
