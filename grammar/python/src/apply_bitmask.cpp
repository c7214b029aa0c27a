#include "apply_bitmask.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace specdec::python {
namespace {

template <class Bits>
void apply_row(Bits* logits, std::span<const int32_t> words, int64_t columns, Bits minus_infinity) {
  for (int64_t first = 0; first < columns; first += 32) {
    const auto word = static_cast<size_t>(first / 32);
    const uint32_t allowed = word < words.size() ? static_cast<uint32_t>(words[word]) : 0;
    if (allowed == ~uint32_t{0}) {
      continue;
    }
    const int64_t end = std::min<int64_t>(columns - first, 32);
    for (int64_t i = 0; i < end; ++i) {
      logits[first + i] = (allowed >> i & 1) != 0 ? logits[first + i] : minus_infinity;
    }
  }
}

}  // namespace

int64_t masked_columns(int64_t columns, int64_t words, std::optional<int64_t> vocab_size) {
  if (vocab_size && (*vocab_size < 1 || *vocab_size > columns)) {
    throw Error(fmt::format("vocab_size is {} for logits of {} columns; it must be from 1 to {}",
                            *vocab_size, columns, columns));
  }
  if (!vocab_size && columns <= 32 * (words - 1)) {
    throw Error(
        fmt::format("logits of {} columns for a bitmask of {} words a row; they must have at least "
                    "{}, or vocab_size must say how many to mask",
                    columns, words, 32 * (words - 1) + 1));
  }
  return vocab_size.value_or(columns);
}

void apply_bitmask(const Tensor& logits, const Tensor& bitmask, std::optional<int64_t> vocab_size,
                   std::span<const int64_t> rows) {
  const std::span<const int32_t> words = bitmask.bitmask(bitmask.columns(), 32 * bitmask.columns());
  const auto width = static_cast<size_t>(bitmask.columns());
  const int64_t columns = masked_columns(logits.columns(), bitmask.columns(), vocab_size);
  const bool brain = logits.kind() == Tensor::Kind::kBfloat;
  if (!brain && logits.kind() != Tensor::Kind::kFloat) {
    throw Error("the logits are no floating-point numbers");
  }
  if (rows.empty() && logits.rows() != bitmask.rows()) {
    throw Error(
        fmt::format("logits of shape {} for a bitmask of shape {}; they must have as many rows",
                    logits.shape(), bitmask.shape()));
  }
  const int64_t count = rows.empty() ? logits.rows() : std::ssize(rows);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows.empty() ? i : rows[static_cast<size_t>(i)];
    if (row < 0 || row >= std::min(logits.rows(), bitmask.rows())) {
      throw Error(fmt::format("there is no row {} in logits of shape {} and a bitmask of shape {}",
                              row, logits.shape(), bitmask.shape()));
    }
    const auto bits = words.subspan(static_cast<size_t>(row) * width, width);
    const auto at = row * logits.columns();
    if (logits.bits() == 64) {
      apply_row<uint64_t>(static_cast<uint64_t*>(logits.data()) + at, bits, columns,
                          0xfff0'0000'0000'0000);
    } else if (logits.bits() == 32) {
      apply_row<uint32_t>(static_cast<uint32_t*>(logits.data()) + at, bits, columns, 0xff80'0000);
    } else if (logits.bits() == 16) {
      apply_row<uint16_t>(static_cast<uint16_t*>(logits.data()) + at, bits, columns,
                          brain ? 0xff80 : 0xfc00);
    } else {
      throw Error("the logits are neither float16, bfloat16, float32 nor float64");
    }
  }
}

}  // namespace specdec::python
