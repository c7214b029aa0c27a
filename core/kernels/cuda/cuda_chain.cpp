#include "core/kernels/cuda/cuda_chain.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/cuda/sampler_tables.h"

namespace specdec {
namespace {

/// What both kinds of chains have: int32 results of each token, itself the first.
class CudaChain : public ChainDrawing {
 public:
  /// `numbers`: of a token's results.
  CudaChain(const ChainRequest& chain, int64_t vocab, int64_t numbers, at::Device device)
      : device_(device),
        count_(chain.count),
        vocab_(vocab),
        results_(at::empty({count_, numbers}, at::TensorOptions(at::kInt).device(device))) {
    SPECDEC_CHECK(count_ > 0 && vocab > 0, "a chain of {} tokens over {}", count_, vocab);
  }

  at::Tensor draw(const at::Tensor& logits) final {
    SPECDEC_CHECK(
        drawn_ < count_ && logits.dim() == 2 && logits.size(0) == 1 && logits.size(1) == vocab_,
        "token {} of a chain of {} is drawn by a row of {} logits, not {}", drawn_, count_,
        logits.numel(), vocab_);
    return draw_at(drawn_++, logits);
  }

  std::optional<DrawnChain> read() final {
    SPECDEC_CHECK(drawn_ == count_, "{} of a chain's {} tokens were drawn", drawn_, count_);
    const at::Tensor found = results_.cpu();
    DrawnChain chain{
        .tokens = {}, .probs = probs(), .read_backs = {1, static_cast<int64_t>(found.nbytes())}};
    const auto* of_token = found.const_data_ptr<int32_t>();
    for (int64_t index = 0; index < count_; ++index, of_token += found.size(1)) {
      if (!is_valid(of_token)) {
        return std::nullopt;
      }
      chain.tokens.push_back(*of_token);
    }
    return chain;
  }

 protected:
  /// A token's results on the device.
  int32_t* results(int64_t index) const {
    return results_.mutable_data_ptr<int32_t>() + index * results_.size(1);
  }
  at::Tensor token(int64_t index) const { return results_[index].narrow(0, 0, 1); }
  int64_t vocab() const { return vocab_; }
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type) const {
    return at::empty(sizes, at::TensorOptions(type).device(device_));
  }
  template <class Task>
  void run(const char* op, int (*kernel)(const Task*, void*), const Task& task) const {
    cuda::run_kernel(device_, op, kernel, task);
  }

 private:
  virtual at::Tensor draw_at(int64_t index, const at::Tensor& logits) = 0;
  /// Whether a token's logits were numbers, by its results on the host.
  virtual bool is_valid(const int32_t* results) const = 0;
  virtual at::Tensor probs() const { return {}; }

  at::Device device_;
  int64_t count_, vocab_;
  at::Tensor results_;  // [count, numbers]
  int64_t drawn_ = 0;
};

/// Each token is the best one. Results: the token, -1 for NaN, and the bits of the two largest
/// logits.
class BestChain final : public CudaChain {
 public:
  BestChain(const ChainRequest& chain, int64_t vocab, at::Device device)
      : CudaChain(chain, vocab, 3, device) {}

 private:
  at::Tensor draw_at(int64_t index, const at::Tensor& logits) override {
    cuda::ArgmaxTask task{};
    task.rows = cuda::floats(logits);
    task.ids = results(index);
    task.largest = reinterpret_cast<float*>(task.ids + 1);
    task.stride = vocab();
    task.count = 1;
    task.size = cuda::narrow(vocab());
    if (!workspace_.defined()) {
      workspace_ = empty({cuda::specdec_cuda_argmax_workspace(&task)}, at::kFloat);
    }
    task.workspace = workspace_.mutable_data_ptr<float>();
    run("argmax", cuda::specdec_cuda_argmax, task);
    return token(index).clamp_min(0);
  }
  bool is_valid(const int32_t* results) const override {
    float largest = 0.0F;
    std::memcpy(&largest, results + 1, sizeof(largest));
    return results[0] >= 0 && std::isfinite(largest);
  }

  at::Tensor workspace_;
};

/// Each token is drawn at random. Results: the token, and how many had mass.
class SampledChain final : public CudaChain {
 public:
  SampledChain(const ChainRequest& chain, int64_t vocab, at::Device device)
      : CudaChain(chain, vocab, 2, device),
        sampling_(chain.sampling),
        random_(empty({2}, at::kLong)),
        probs_(empty({chain.count, vocab}, at::kDouble)) {
    SPECDEC_CHECK(
        !sampling_.greedy() && sampling_.repetition_penalty == 1.0 && sampling_.logit_bias.empty(),
        "a chain that the host draws");
    const at::Tensor here = at::empty({2}, at::kLong);
    auto* words = here.mutable_data_ptr<int64_t>();
    std::memcpy(words, chain.random->key.data(), sizeof(int64_t));
    words[1] = chain.random->position;
    random_.copy_(here);
  }

 private:
  at::Tensor draw_at(int64_t index, const at::Tensor& logits) override {
    double* row = probs_.mutable_data_ptr<double>() + index * vocab();
    cuda::TargetProbsTask target = cuda::target_probs_task(logits, sampling_, row);
    target.support = results(index) + 1;
    run("target_probs", cuda::specdec_cuda_target_probs, target);
    const auto* words = random_.const_data_ptr<int64_t>();
    cuda::DrawRowsTask drawn{};
    drawn.probs = row;
    drawn.key = reinterpret_cast<const uint32_t*>(words);
    drawn.positions = words + 1;
    drawn.tokens = results(index);
    drawn.purpose = static_cast<uint32_t>(Purpose::kDraft);
    drawn.choice = static_cast<uint32_t>(index);
    drawn.count = 1;
    drawn.vocab = cuda::narrow(vocab());
    run("draw_rows", cuda::specdec_cuda_draw_rows, drawn);
    return token(index);
  }
  bool is_valid(const int32_t* results) const override { return results[1] != 0; }
  at::Tensor probs() const override { return probs_; }

  SamplingParams sampling_;
  at::Tensor random_;  // the key's two words, and the position
  at::Tensor probs_;   // [count, vocab]
};

}  // namespace

std::unique_ptr<ChainDrawing> cuda_chain(const ChainRequest& chain, int64_t vocab,
                                         at::Device device) {
  if (chain.random) {
    return std::make_unique<SampledChain>(chain, vocab, device);
  }
  return std::make_unique<BestChain>(chain, vocab, device);
}

}  // namespace specdec
