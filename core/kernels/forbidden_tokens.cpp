#include "core/kernels/forbidden_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

template <class T>
void forbid_on_host(int64_t usable, const std::vector<Token>& suppressed, at::Tensor& logits) {
  constexpr T kNever = -std::numeric_limits<T>::infinity();
  const int64_t vocab = logits.size(1);
  T* row = logits.mutable_data_ptr<T>();
  for (int64_t n = 0; n < logits.size(0); ++n, row += vocab) {
    std::fill(row + usable, row + vocab, kNever);
    for (const Token token : suppressed) {
      row[token] = kNever;
    }
  }
}

}  // namespace

ForbiddenTokens::ForbiddenTokens(int64_t vocab, int64_t usable, std::vector<Token> suppressed,
                                 at::Device device)
    : usable_(usable == 0 ? vocab : usable), suppressed_(std::move(suppressed)) {
  SPECDEC_CHECK(usable >= 0 && usable <= vocab, "{} usable tokens of a vocabulary of {}", usable,
                vocab);
  least_columns_ = usable_;
  for (const Token token : suppressed_) {
    SPECDEC_CHECK(token >= 0 && token < vocab, "suppressed token {} of {}", token, vocab);
    least_columns_ = std::max<int64_t>(least_columns_, token + 1);
  }
  ids_ = at::tensor(suppressed_, at::kLong).to(device);
}

void ForbiddenTokens::check(const at::Tensor& logits) const {
  SPECDEC_CHECK(logits.dim() == 2 && logits.size(1) >= least_columns_ && logits.is_contiguous(),
                "forbidden tokens: logits should be contiguous [n, {} or more]", least_columns_);
}

void ForbiddenTokens::apply(at::Tensor& logits) const {
  check(logits);
  if (logits.is_cpu() && logits.scalar_type() == at::kFloat) {
    return forbid_on_host<float>(usable_, suppressed_, logits);
  }
  if (logits.is_cpu() && logits.scalar_type() == at::kDouble) {
    return forbid_on_host<double>(usable_, suppressed_, logits);
  }
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (usable_ < logits.size(1)) {
    logits.narrow(1, usable_, logits.size(1) - usable_).fill_(kNever);
  }
  if (!suppressed_.empty()) {
    logits.index_fill_(1, ids_, kNever);
  }
}

}  // namespace specdec
