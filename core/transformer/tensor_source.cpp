#include "core/transformer/tensor_source.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "core/formats/finite_values.h"
#include "core/formats/tensor_slice.h"

namespace specdec {
namespace {

std::set<DType> float_types() {
  std::set<DType> types = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI8};
  for (auto type = DType::kQ40; type <= kLastType;
       type = static_cast<DType>(static_cast<int>(type) + 1)) {
    types.insert(type);
  }
  return types;
}

const std::set<DType> kFloats = float_types();
const std::set<DType> kIntegers = {DType::kI64, DType::kI32};
/// Bytes of a file that are in memory at a time, about.
constexpr size_t kPieceBytes = size_t{8} << 20;

/// Dtype of values as they are read: those of codes and scales are float32.
at::ScalarType value_type(DType dtype) {
  return is_block(dtype) || dtype == DType::kI8 ? at::kFloat : stored_scalar_type(dtype);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string dtype_names(const std::set<DType>& dtypes) {
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) {
    names.push_back(dtype_name(dtype));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The format of Linear with the same values, or codes and scales; float64 is of whole models.
std::optional<WeightFormat> linear_format(DType dtype) {
  for (auto format = WeightFormat::kFloat32; format <= kLastFormat;
       format = static_cast<WeightFormat>(static_cast<int>(format) + 1)) {
    if (stored_dtype(format) == dtype) {
      return format;
    }
  }
  return std::nullopt;
}

/// A matrix in blocks, [rows, bytes of one] as the layout kRows has it.
Tensor block_rows(const TensorEntry& entry, WeightFormat format) {
  const int64_t rows = entry.shape[0];
  const auto row_bytes = static_cast<int64_t>(entry.bytes.size()) / rows;
  if (!has_codebook(format)) {
    auto* bytes = const_cast<std::byte*>(entry.bytes.data());  // only copied from
    return at::from_blob(bytes, {rows, row_bytes}, at::kByte);
  }
  Linear here(rows, entry.shape[1], format, {at::kCPU, WeightLayout::kRows});
  for (int64_t row = 0; row < rows; ++row) {
    here.set_stored_row(row, entry.bytes.data() + row * row_bytes);
  }
  return here.parts().front().packed;
}

}  // namespace

TensorSource::TensorSource(std::shared_ptr<const TensorFiles> checkpoint, const Placement& place)
    : checkpoint_(std::move(checkpoint)), place_(place), reads_bytes_(!place.device.is_meta()) {}

TensorSource::TensorSource(CheckpointTensors checkpoint, const Placement& place)
    : TensorSource(std::make_shared<const CheckpointTensors>(std::move(checkpoint)), place) {}

void TensorSource::find_prefix(const std::string& name) {
  names_ = find_names(*checkpoint_, name).value_or(names_);
}

bool TensorSource::has(const std::string& name) const {
  return checkpoint_->find(full_name(names_, name)) != nullptr;
}

Tensor TensorSource::load(const std::string& name, const std::vector<int64_t>& shape,
                          at::ScalarType dtype) {
  const TensorEntry& entry = take(name, shape, kFloats);
  Tensor copy = at::empty(shape, at::TensorOptions(dtype).device(place_.device));
  Tensor all = shape.empty() ? copy.view({1}) : copy;
  for_rows(entry,
           [&](int64_t row, const Tensor& rows) { all.narrow(0, row, rows.size(0)).copy_(rows); });
  return copy;
}

void TensorSource::read_rows(const std::string& name, const std::vector<int64_t>& shape,
                             const std::function<void(int64_t first, const Tensor& rows)>& use) {
  for_rows(take(name, shape, kFloats), use);
}

void TensorSource::copy_into(Tensor& matrix, int64_t first, const std::string& name,
                             const std::vector<int64_t>& shape) {
  for_rows(take(name, shape, kFloats), [&](int64_t row, const Tensor& rows) {
    matrix.narrow(0, first + row, rows.size(0)).copy_(rows);
  });
}

void TensorSource::copy_into(Linear& matrix, int64_t first, const std::string& name,
                             const std::vector<int64_t>& shape) {
  const TensorEntry& entry = take(name, shape, kFloats);
  if (place_.device.is_meta()) {
    return;
  }
  checkpoint_->provide(entry);
  if (is_block(entry.dtype) && linear_format(entry.dtype) == matrix.format(first)) {
    set_blocks(entry, matrix, first);
    checkpoint_->release(entry);
    return;
  }
  for_rows(entry, [&](int64_t row, const Tensor& rows) { matrix.set_rows(first + row, rows); });
}

template <class Matrix>
void TensorSource::copy_stack(std::vector<Matrix>& matrices, int64_t first, const std::string& name,
                              const std::vector<int64_t>& shape) {
  const TensorEntry& entry = take(name, shape, kFloats);
  if (place_.device.is_meta()) {
    return;
  }
  checkpoint_->provide(entry);
  const size_t bytes = entry.bytes.size() / static_cast<size_t>(shape[0]);
  for (int64_t i = 0; i < shape[0]; ++i) {
    auto& matrix = matrices[static_cast<size_t>(i)];
    const TensorEntry one = slice_rows(entry, i * shape[1], {shape[1], shape[2]}, entry.name);
    if constexpr (std::is_same_v<Matrix, Linear>) {
      if (is_block(one.dtype) && linear_format(one.dtype) == matrix.format(first)) {
        set_blocks(one, matrix, first);
      } else {
        matrix.set_rows(first, stored_rows(one, 0, shape[1]));
      }
    } else {
      matrix.narrow(0, first, shape[1]).copy_(stored_rows(one, 0, shape[1]));
    }
    checkpoint_->release(entry, static_cast<size_t>(i) * bytes, bytes);
  }
  checkpoint_->release(entry);
}

template void TensorSource::copy_stack(std::vector<Tensor>&, int64_t, const std::string&,
                                       const std::vector<int64_t>&);
template void TensorSource::copy_stack(std::vector<Linear>&, int64_t, const std::string&,
                                       const std::vector<int64_t>&);

RowTable TensorSource::row_table(const std::string& name, const std::vector<int64_t>& shape) {
  std::set<DType> dtypes = kFloats;
  dtypes.erase(DType::kI8);
  const TensorEntry& entry = take(name, shape, dtypes);
  checkpoint_->provide(entry);
  return {checkpoint_, entry};
}

std::optional<WeightFormat> TensorSource::stored_format(const std::string& name) const {
  const TensorEntry* entry = checkpoint_->find(full_name(names_, name));
  return entry == nullptr ? std::nullopt : linear_format(entry->dtype);
}

void TensorSource::set_blocks(const TensorEntry& entry, Linear& matrix, int64_t first) {
  const int64_t rows = entry.shape[0];
  const size_t row_bytes = entry.bytes.size() / static_cast<size_t>(rows);
  const int64_t group = std::max<int64_t>(1, entry.interleaved_rows);
  if (matrix.layout() == WeightLayout::kRows) {  // in one copy to its device
    const auto part =
        std::find_if(matrix.parts().begin(), matrix.parts().end(),
                     [first](const Linear::Part& one) { return first < one.first + one.out; });
    Tensor packed = part->packed;
    packed.narrow(0, first - part->first, rows)
        .copy_(deinterleaved(block_rows(entry, part->format), group));
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t place = row % group;
    const int64_t in_order = row - place + place / 2 + place % 2 * (group / 2);
    matrix.set_stored_row(first + (group > 1 ? in_order : row),
                          entry.bytes.data() + static_cast<size_t>(row) * row_bytes);
  }
}

void TensorSource::for_rows(
    const TensorEntry& entry,
    const std::function<void(int64_t first, const Tensor& rows)>& use) const {
  if (place_.device.is_meta()) {
    return;
  }
  checkpoint_->provide(entry);
  if (entry.shape.empty()) {
    use(0, mapped_tensor(entry).reshape({1}));
    return;
  }
  const int64_t rows = entry.shape[0];
  const auto row_bytes = entry.bytes.size() / static_cast<size_t>(std::max<int64_t>(1, rows));
  const int64_t group = std::max<int64_t>(1, entry.interleaved_rows);
  auto count =
      static_cast<int64_t>(std::max<size_t>(1, kPieceBytes / std::max<size_t>(1, row_bytes)));
  count = (count + group - 1) / group * group;
  for (int64_t row = 0; row < rows; row += count) {
    const int64_t here = std::min(count, rows - row);
    const TensorEntry* scales =
        entry.dtype == DType::kI8 ? checkpoint_->find(scales_name(entry.name)) : nullptr;
    use(row, deinterleaved(scales == nullptr ? stored_rows(entry, row, here)
                                             : scaled_rows(entry, *scales, row, here),
                           group));
    checkpoint_->release(entry, static_cast<size_t>(row) * row_bytes,
                         static_cast<size_t>(here) * row_bytes);
  }
  checkpoint_->release(entry);
}

Tensor TensorSource::load_integers(const std::string& name, const std::vector<int64_t>& shape) {
  return mapped_tensor(take(name, shape, kIntegers))
      .to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

Tensor TensorSource::load_booleans(const std::string& name, const std::vector<int64_t>& shape) {
  return mapped_tensor(take(name, shape, {DType::kBool})).clone();
}

at::ScalarType TensorSource::stored_dtype(const std::string& name,
                                          const std::vector<int64_t>& shape) {
  const TensorEntry& entry = take(name, shape, kFloats);
  checkpoint_->release(entry);
  return value_type(entry.dtype);
}

at::ScalarType TensorSource::common_dtype() const {
  std::set<at::ScalarType> all;
  for (const TensorEntry* entry : checkpoint_->tensors()) {
    if (entry->shape.size() == 2 && kFloats.count(entry->dtype) != 0 &&
        !is_of_another_part(entry->name)) {
      all.insert(value_type(entry->dtype));
    }
  }
  return all.count(at::kDouble) != 0 ? at::kDouble : all.size() == 1 ? *all.begin() : at::kFloat;
}

const TensorEntry& TensorSource::stored(const std::string& name,
                                        const std::vector<int64_t>& shape) {
  return take(name, shape, kFloats);
}

void TensorSource::skip(const std::string& name, const std::vector<int64_t>& shape) {
  if (has(name)) {
    checkpoint_->release(take(name, shape, kFloats));
  }
}

bool TensorSource::skip_copy(const std::string& name, const std::string& other,
                             const std::vector<int64_t>& shape) {
  const TensorEntry* a = checkpoint_->find(full_name(names_, name));
  const TensorEntry* b = checkpoint_->find(full_name(names_, other));
  if (a == nullptr || b == nullptr || a->dtype != b->dtype || a->shape != b->shape) {
    return false;
  }
  checkpoint_->provide(*a);
  checkpoint_->provide(*b);
  const bool same = std::equal(a->bytes.begin(), a->bytes.end(), b->bytes.begin(), b->bytes.end());
  checkpoint_->release(*b);
  if (same) {
    skip(name, shape);
  } else {
    checkpoint_->release(*a);
  }
  return same;
}

void TensorSource::check_all_taken(const std::string& prefix) const {
  check_none_missing(prefix);
  std::vector<std::string> left;
  for (const TensorEntry* entry : checkpoint_->tensors()) {
    const bool skipped =
        prefix.empty() ? is_of_another_part(entry->name) : entry->name.rfind(prefix, 0) != 0;
    if (taken_.count(entry->name) == 0 && !skipped) {
      left.push_back(entry->name);
    }
  }
  if (!left.empty()) {
    throw WeightsError(
        fmt::format("{}: tensor '{}' (and {} more) belongs to no layer that {} describes. "
                    "Check that both are of the same model.",
                    folder().string(), checkpoint_->stored_name(left.front()), left.size() - 1,
                    checkpoint_->described_by()));
  }
}

void TensorSource::check_none_missing(const std::string& prefix) const {
  for (const auto& [name, file] : checkpoint_->missing()) {
    // A head that is missing is the embedding again, or would have been asked for.
    const bool skipped =
        prefix.empty() ? is_of_another_part(name) || name == full_name(names_, "lm_head.weight")
                       : name.rfind(prefix, 0) != 0;
    if (!skipped) {
      throw WeightsError(
          fmt::format("{}: the index says that tensor '{}' is in {}, which does not hold it. Are "
                      "index and shards of the same checkpoint?",
                      folder().string(), name, file));
    }
  }
}

std::string TensorSource::scales_hint(const std::string& full) const {
  const size_t dot = full.rfind('.');
  const std::string scales = full.substr(0, dot) + ".scales";
  if (dot == std::string::npos || checkpoint_->find(scales) == nullptr) {
    return "";
  }
  return fmt::format(
      " Beside it stands '{}', so these may be codes of a quantised matrix, of which config.json "
      "says nothing: MLX writes bits and group_size under 'quantization'.",
      checkpoint_->stored_name(scales));
}

const TensorEntry& TensorSource::take(const std::string& name, const std::vector<int64_t>& shape,
                                      const std::set<DType>& dtypes) {
  const std::string full = full_name(names_, name);
  const TensorEntry* entry = checkpoint_->find(full);
  if (entry == nullptr) {
    throw WeightsError(fmt::format("{}: tensor '{}' is missing; {} asks for it with shape {}.",
                                   folder().string(), checkpoint_->stored_name(full),
                                   checkpoint_->described_by(), shape_text(shape)));
  }
  if (entry->shape != shape) {
    throw WeightsError(fmt::format(
        "{}: tensor '{}' has shape {}, but {} asks for {}.{}", folder().string(),
        checkpoint_->stored_name(full), shape_text(entry->shape), checkpoint_->described_by(),
        shape_text(shape), dtypes.count(entry->dtype) == 0 ? scales_hint(full) : ""));
  }
  if (dtypes.count(entry->dtype) == 0) {
    throw WeightsError(fmt::format("{}: tensor '{}' has dtype {}; it should be one of {}.{}",
                                   folder().string(), checkpoint_->stored_name(full),
                                   dtype_name(entry->dtype), dtype_names(dtypes),
                                   scales_hint(full)));
  }
  if (entry->dtype == DType::kI8) {
    take_scales(name, shape);
  }
  if (taken_.insert(full).second && reads_bytes_) {
    hash_ = hash_bytes(hash_, full.data(), full.size());
    read_bytes(*entry);
  }
  return *entry;
}

void TensorSource::read_bytes(const TensorEntry& entry) {
  checkpoint_->provide(entry);
  // Whole blocks, and a multiple of what hash_bytes takes at once.
  const size_t unit = 8 * static_cast<size_t>(dtype_bytes(entry.dtype));
  const size_t piece = kPieceBytes / unit * unit;
  for (size_t begin = 0; begin < entry.bytes.size(); begin += piece) {
    const size_t size = std::min(piece, entry.bytes.size() - begin);
    check_finite(entry, begin, size);
    hash_ = hash_bytes(hash_, entry.bytes.data() + begin, size);
    checkpoint_->release(entry, begin, size);
  }
}

void TensorSource::check_finite(const TensorEntry& entry, size_t begin, size_t size) const {
  const auto found = first_not_finite(entry.dtype, entry.bytes.subspan(begin, size));
  if (!found) {
    return;
  }
  int64_t rest = found->value +
                 static_cast<int64_t>(begin) / dtype_bytes(entry.dtype) * block_values(entry.dtype);
  std::vector<int64_t> place(entry.shape.size());
  for (size_t i = place.size(); i-- > 0;) {
    place[i] = rest % entry.shape[i];
    rest /= entry.shape[i];
  }
  throw WeightsError(fmt::format(
      "{}: tensor '{}' holds {} at {}{}: the file is damaged, or its training had diverged. "
      "Download it again, or use another checkpoint.",
      folder().string(), checkpoint_->stored_name(entry.name), found->is_nan ? "NaN" : "infinity",
      shape_text(place),
      is_block(entry.dtype) ? fmt::format(" (in a {} block)", dtype_name(entry.dtype)) : ""));
}

void TensorSource::take_scales(const std::string& name, const std::vector<int64_t>& shape) {
  if (shape.size() != 2 || shape[1] % kInt8Inputs != 0) {
    throw WeightsError(fmt::format(
        "{}: tensor '{}' has dtype I8, in which matrices are stored whose rows have a multiple of "
        "{} values; its shape is {}.",
        folder().string(), name, kInt8Inputs, shape_text(shape)));
  }
  take(scales_name(name), {shape[0], shape[1] / kInt8Inputs}, {DType::kF16});
}

}  // namespace specdec
