#include "core/result_memory.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace specdec {

bool ResultMemory::Buffer::is_unused() const {
  const auto is_ours = [](const auto& view) { return view.second.use_count() == 1; };
  return !memory.defined() || (memory.storage().use_count() == 1 + by_rows.size() &&
                               std::all_of(by_rows.begin(), by_rows.end(), is_ours));
}

void ResultMemory::Buffer::acquire() const {
  // To drop a reference is an acquire of the drops before it.
  const c10::Storage storage = memory.storage();
  for (const auto& [rows, view] : by_rows) {
    const Tensor dropped = view;
  }
}

Tensor ResultMemory::rows(int64_t rows) {
  const auto unused = std::find_if(buffers_.begin(), buffers_.end(),
                                   [](const Buffer& buffer) { return buffer.is_unused(); });
  if (rows > kMostRows || unused == buffers_.end()) {
    return at::empty({rows, width_}, options_);
  }
  if (unused->memory.defined()) {
    unused->acquire();
  }
  if (!unused->memory.defined() || unused->memory.numel() < rows * width_) {
    *unused = {};  // before it takes more
    unused->memory = at::empty({rows * width_}, options_);
  }
  Tensor& view = unused->by_rows[rows];
  if (!view.defined()) {
    view = unused->memory.narrow(0, 0, rows * width_).view({rows, width_});
  }
  return view;
}

}  // namespace specdec
