#include "core/kernels/row_table.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "core/kernels/checks.h"
#include "core/kernels/stored_rows.h"

namespace specdec {

RowTable::RowTable(Tensor rows)
    : rows_(std::move(rows)), count_(rows_.size(0)), width_(rows_.size(1)) {}

RowTable::RowTable(std::shared_ptr<const TensorFiles> files, const TensorEntry& entry)
    : files_(std::move(files)), entry_(&entry), count_(entry.shape[0]), width_(entry.shape[1]) {}

int64_t RowTable::bytes() const {
  return rows_.defined() ? static_cast<int64_t>(rows_.nbytes()) : 0;
}

int64_t RowTable::mapped_bytes() const {
  return entry_ == nullptr ? 0 : static_cast<int64_t>(entry_->bytes.size());
}

void RowTable::look_up(const Tensor& ids, double factor, Tensor& out) const {
  check_cpu(ids);
  SPECDEC_CHECK(defined() && ids.dim() == 1 && is_plain(ids, at::kInt) && is_float_or_double(out) &&
                    out.is_contiguous() && out.dim() == 2 && out.size(0) == ids.size(0) &&
                    out.size(1) == width_,
                "look_up: ids should be [n] int32, out [n, {}]", width_);
  const int32_t* id = ids.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < ids.size(0); ++i) {
    const int64_t row = id[i] >= 0 && id[i] < count_ ? id[i] : 0;
    out.select(0, i).copy_(entry_ == nullptr ? rows_.select(0, row)
                                             : stored_rows(*entry_, row, 1).select(0, 0));
  }
  out.mul_(factor);
}

}  // namespace specdec
