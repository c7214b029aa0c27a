#include "core/device_probs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>

#include "core/error.h"
#include "core/kernels/probs.h"

namespace specdec {
namespace {

/// Rows on a device, and what the host has read of them.
class DeviceRows {
 public:
  explicit DeviceRows(at::Tensor rows) : rows_(std::move(rows)) {}

  const at::Tensor& tensor() const { return rows_; }
  std::span<const double> row(int64_t index) const {
    read();
    const auto vocab = static_cast<size_t>(rows_.size(1));
    return std::span(host_.const_data_ptr<double>(), host_.numel())
        .subspan(static_cast<size_t>(index) * vocab, vocab);
  }
  /// Sums of the row's blocks.
  std::span<const double> sums(int64_t index) const {
    read();
    const size_t blocks = sums_.size() / static_cast<size_t>(rows_.size(0));
    return std::span(sums_).subspan(static_cast<size_t>(index) * blocks, blocks);
  }

 private:
  void read() const {
    std::call_once(is_read_, [this] {
      host_ = rows_.cpu().contiguous();
      const auto vocab = static_cast<size_t>(rows_.size(1));
      const double* row = host_.const_data_ptr<double>();
      for (int64_t index = 0; index < rows_.size(0); ++index, row += vocab) {
        for (size_t begin = 0; begin < vocab; begin += kProbsBlock) {
          const size_t size = std::min(kProbsBlock, vocab - begin);
          sums_.push_back(sum_of(std::span(row + begin, size)).sum);
        }
      }
    });
  }

  at::Tensor rows_;
  mutable std::once_flag is_read_;
  mutable at::Tensor host_;
  mutable std::vector<double> sums_;  // [rows, blocks]
};

/// One of them.
class DeviceRow final : public WeightBlocks {
 public:
  DeviceRow(std::shared_ptr<const DeviceRows> rows, int64_t index)
      : rows_(std::move(rows)), index_(index) {}

  const DeviceRows* rows() const { return rows_.get(); }
  int64_t index() const { return index_; }

  int64_t size() const override { return rows_->tensor().size(1); }
  std::span<const double> sums() const override { return rows_->sums(index_); }
  void fill(int64_t block, std::span<double> weights) const override {
    const auto from = rows_->row(index_).subspan(static_cast<size_t>(block) * kProbsBlock);
    std::copy_n(from.begin(), size_of(block), weights.begin());
  }

 private:
  std::shared_ptr<const DeviceRows> rows_;
  int64_t index_;
};

const DeviceRow* device_row(const TokenProbs& probs) {
  return dynamic_cast<const DeviceRow*>(probs.blocks());
}

}  // namespace

std::vector<TokenProbs> device_probs(const at::Tensor& rows) {
  SPECDEC_CHECK(rows.dim() == 2 && rows.scalar_type() == at::kDouble && rows.is_contiguous(),
                "probabilities on a device should be contiguous [rows, vocab] float64");
  const auto shared = std::make_shared<const DeviceRows>(rows);
  std::vector<TokenProbs> probs;
  for (int64_t index = 0; index < rows.size(0); ++index) {
    probs.emplace_back(std::make_shared<DeviceRow>(shared, index));
  }
  return probs;
}

bool is_on_device(const TokenProbs& probs) { return device_row(probs) != nullptr; }

at::Tensor rows_on_device(const std::vector<TokenProbs>& probs) {
  const DeviceRow* first = probs.empty() ? nullptr : device_row(probs.front());
  if (first == nullptr) {
    return {};
  }
  for (size_t i = 1; i < probs.size(); ++i) {
    const DeviceRow* row = device_row(probs[i]);
    if (row == nullptr || row->rows() != first->rows() ||
        row->index() != first->index() + static_cast<int64_t>(i)) {
      return {};
    }
  }
  return first->rows()->tensor().narrow(0, first->index(), std::ssize(probs));
}

}  // namespace specdec
