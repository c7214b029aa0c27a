#include "experiments/train/evaluation.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "core/transformer/reference.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

struct Sums {
  double bits = 0.0;
  double agreement = 0.0;
  double overlap = 0.0;
  int64_t tokens = 0;
};

void add_window(const TransformerTensors& model, const TransformerTensors* teacher,
                const std::vector<Token>& window, Sums& sums) {
  const auto row = at::tensor(at::IntArrayRef(std::vector<int64_t>(window.begin(), window.end())),
                              at::TensorOptions(at::kLong).device(model.place.device))
                       .unsqueeze(0);
  const int64_t count = row.size(1) - 1;
  const auto inputs = row.narrow(1, 0, count);
  const auto targets = row.narrow(1, 1, count).unsqueeze(-1);
  const auto log_probs = at::log_softmax(reference_forward(model, inputs).logits, -1);
  sums.bits -= log_probs.gather(-1, targets).sum().item<double>() / std::log(2.0);
  sums.tokens += count;
  if (teacher != nullptr) {
    const auto other = at::softmax(reference_forward(*teacher, inputs).logits, -1);
    sums.agreement += other.argmax(-1).eq(log_probs.argmax(-1)).sum().item<double>();
    sums.overlap += at::minimum(other, log_probs.exp()).sum().item<double>();
  }
}

}  // namespace

std::map<std::string, Evaluation> evaluate(const TransformerTensors& model,
                                           const TransformerTensors* teacher, const TextData& data,
                                           int64_t max_windows) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, Evaluation> result;
  for (const auto& [kind, held] : data.held_out()) {
    const auto all = static_cast<int64_t>(held.windows.size());
    const int64_t windows = max_windows > 0 ? std::min(all, max_windows) : all;
    Sums sums;
    int64_t all_tokens = 0;
    for (int64_t i = 0; i < all; ++i) {
      const auto& window = held.windows[static_cast<size_t>(i)];
      all_tokens += static_cast<int64_t>(window.size()) - 1;
      // Spread over the text: its end may be unlike its beginning.
      if (i * windows / all != (i + 1) * windows / all && window.size() > 1) {
        if (max_windows == 0) {  // the last evaluation of a training, whose state is saved by then
          InterruptGuard::check();
        }
        add_window(model, teacher, window, sums);
      }
    }
    Evaluation& out = result[kind];
    out.tokens = sums.tokens;
    const double tokens = static_cast<double>(std::max<int64_t>(sums.tokens, 1));
    const double bytes_per_token =
        static_cast<double>(held.bytes) / static_cast<double>(all_tokens);
    out.bits_per_byte = sums.bits / (tokens * bytes_per_token);
    if (teacher != nullptr) {
      out.agreement = sums.agreement / tokens;
      out.overlap = sums.overlap / tokens;
    }
  }
  return result;
}

}  // namespace specdec
