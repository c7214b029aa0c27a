#include "core/kernels/linear_rows.h"

#include <ATen/ATen.h>

#include <span>

#include "core/kernels/checks.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/weight_fragments.h"

namespace specdec {
namespace {

const Linear::Part& only_part(const Linear& weight) {
  SPECDEC_CHECK(weight.parts().size() == 1, "Linear: rows of {} parts", weight.parts().size());
  return weight.parts().front();
}

void unpack_part(const Linear::Part& part, const Tensor& ids, Tensor& out) {
  const Tensor here = ids.to(at::kCPU, at::kInt).contiguous();
  unpack_rows(part.packed, part.format,
              {here.const_data_ptr<int32_t>(), static_cast<size_t>(here.size(0))}, out);
}

}  // namespace

Tensor linear_rows(const Linear& weight, const Linear::Part& part, const Tensor& ids) {
  if (weight.layout() == WeightLayout::kRows) {
    const Tensor here = ids.to(weight.device(), at::kLong);
    if (part.in_fragments) {
      const Tensor some = unpack_fragments(part.packed, part.format, weight.in(), here);
      return read_weight_rows(some, part.format, at::arange(here.size(0), here.options()),
                              weight.in());
    }
    return read_weight_rows(part.packed, part.format, here, weight.in());
  }
  Tensor out = at::empty({ids.size(0), weight.in()}, weight.compute_dtype());
  unpack_part(part, ids, out);
  return out;
}

Tensor linear_rows(const Linear& weight, const Tensor& ids) {
  return linear_rows(weight, only_part(weight), ids);
}

void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out) {
  const Linear::Part& part = only_part(table);
  check_cpu(part.packed);
  SPECDEC_CHECK(table.layout() == WeightLayout::kPanels && is_plain(out, table.compute_dtype()) &&
                    out.dim() == 2 && out.size(0) == ids.size(0) && out.size(1) == table.in(),
                "embed_rows: a weight in panels, and out contiguous [{}, {}] of dtype {}",
                ids.size(0), table.in(), c10::toString(table.compute_dtype()));
  unpack_part(part, ids, out);
  scaled_copy(out, factor, out);
}

}  // namespace specdec
