#include "core/kernels/cuda/cuda_chain.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/draft_vocabulary.h"
#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/cuda_tasks.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/cuda/sampler_tables.h"
#include "core/kernels/staged_upload.h"

namespace specdec {
namespace {

/// int32 numbers of the memory that each token has, and of what all share.
constexpr int64_t kNumbers = 4;

int64_t argmax_workspace(int64_t vocab) {
  cuda::ArgmaxTask task{};
  task.count = 1;
  task.size = cuda::narrow(vocab);
  return cuda::specdec_cuda_argmax_workspace(&task);
}

/// What both kinds of chains have: int32 results of each token, itself the first.
class CudaChain : public ChainDrawing {
 public:
  /// `numbers`: of a token's results, which lie one behind the other at the memory's beginning.
  CudaChain(const ChainRequest& chain, int64_t vocab, int64_t numbers, at::Device device,
            ChainMemory& memory, std::shared_ptr<void* const> stream)
      : device_(device),
        stream_(std::move(stream)),
        count_(chain.count),
        vocab_(vocab),
        numbers_(numbers),
        vocabulary_(chain.vocabulary) {
    SPECDEC_CHECK(count_ > 0 && vocab > 0, "a chain of {} tokens over {}", count_, vocab);
    SPECDEC_CHECK(vocabulary_ == nullptr || vocabulary_->columns() == vocab,
                  "{} columns and a draft vocabulary of others", vocab);
    memory_ = memory.results.rows(count_ + 1).view({-1});
  }

  at::Tensor draw(int64_t index, const at::Tensor& logits) final {
    SPECDEC_CHECK(index >= 0 && index < count_ && logits.dim() == 2 && logits.size(0) == 1 &&
                      logits.size(1) == vocab_,
                  "token {} of a chain of {} is drawn by a row of {} logits, not {}", index, count_,
                  logits.numel(), vocab_);
    return draw_at(index, logits);
  }

  std::vector<int64_t> key() const final {
    std::vector<int64_t> key = {count_, vocab_, numbers_, address(memory_),
                                vocabulary_ == nullptr ? 0 : address(vocabulary_->ids())};
    add_to(key);
    return key;
  }

  std::optional<DrawnChain> read() final {
    const at::Tensor found = memory_.narrow(0, 0, count_ * numbers_).cpu();
    DrawnChain chain{.tokens = {}, .read_backs = {1, static_cast<int64_t>(found.nbytes())}};
    const auto* of_token = found.const_data_ptr<int32_t>();
    for (int64_t index = 0; index < count_; ++index, of_token += numbers_) {
      if (!is_valid(of_token)) {
        return std::nullopt;
      }
      chain.tokens.push_back(vocabulary_ == nullptr
                                 ? *of_token
                                 : vocabulary_->tokens()[static_cast<size_t>(*of_token)]);
    }
    chain.probs = probs();
    if (vocabulary_ != nullptr && chain.probs.defined()) {
      chain.probs = vocabulary_->widened(chain.probs, 0.0);
    }
    return chain;
  }

 protected:
  /// Where a token's results begin in the memory.
  int64_t place(int64_t index) const { return index * numbers_; }
  /// Where the tokens that are fed, and then kNumbers others, begin behind all results.
  int64_t behind_results() const { return count_ * numbers_; }
  int64_t behind_all() const { return count_ * kNumbers; }
  int32_t* numbers_at(int64_t place) const { return memory_.mutable_data_ptr<int32_t>() + place; }
  at::Tensor token_at(int64_t place) const { return memory_.narrow(0, place, 1); }
  /// Copies numbers of the host to a place.
  void upload(const std::vector<int32_t>& numbers, int64_t place) const {
    specdec::upload(numbers.data(), memory_.narrow(0, place, std::ssize(numbers)));
  }
  int64_t vocab() const { return vocab_; }
  /// The tokens of the columns; nullptr = each is its own.
  const int32_t* names() const {
    return vocabulary_ == nullptr ? nullptr : vocabulary_->ids().const_data_ptr<int32_t>();
  }
  static int64_t address(const at::Tensor& memory) {
    return reinterpret_cast<intptr_t>(memory.const_data_ptr());
  }
  template <class Task>
  void run(const char* op, int (*kernel)(const Task*, void*), const Task& task) const {
    cuda::run_kernel(device_, op, kernel, task, *stream_);
  }

 private:
  virtual at::Tensor draw_at(int64_t index, const at::Tensor& logits) = 0;
  virtual void add_to(std::vector<int64_t>& key) const = 0;
  /// Whether a token's logits were numbers, by its results on the host.
  virtual bool is_valid(const int32_t* results) const = 0;
  virtual at::Tensor probs() const { return {}; }

  at::Device device_;
  std::shared_ptr<void* const> stream_;
  int64_t count_, vocab_, numbers_;
  const DraftVocabulary* vocabulary_;
  at::Tensor memory_;  // int32 [(count + 1) * kNumbers]
};

/// Each token is the best one. Results: the token, -1 for NaN, and the bits of the two largest
/// logits; behind them the tokens that are fed.
class BestChain final : public CudaChain {
 public:
  BestChain(const ChainRequest& chain, int64_t vocab, at::Device device, ChainMemory& memory,
            std::shared_ptr<void* const> stream)
      : CudaChain(chain, vocab, 3, device, memory, std::move(stream)),
        workspace_(memory.workspace.rows(1)) {}

 private:
  at::Tensor draw_at(int64_t index, const at::Tensor& logits) override {
    cuda::ArgmaxTask task{};
    task.rows = cuda::floats(logits);
    task.ids = numbers_at(place(index));
    task.largest = reinterpret_cast<float*>(task.ids + 1);
    task.tokens = numbers_at(behind_results() + index);
    task.names = names();
    task.stride = vocab();
    task.count = 1;
    task.size = cuda::narrow(vocab());
    task.workspace = workspace_.mutable_data_ptr<float>();
    run("argmax", cuda::specdec_cuda_argmax, task);
    return token_at(behind_results() + index);
  }
  void add_to(std::vector<int64_t>& key) const override { key.push_back(address(workspace_)); }
  bool is_valid(const int32_t* results) const override {
    float largest = 0.0F;
    std::memcpy(&largest, results + 1, sizeof(largest));
    return results[0] >= 0 && std::isfinite(largest);
  }

  at::Tensor workspace_;
};

/// Each token is drawn at random. Results: the token, and how many had mass; behind all the random
/// numbers' key and position.
class SampledChain final : public CudaChain {
 public:
  SampledChain(const ChainRequest& chain, int64_t vocab, at::Device device, ChainMemory& memory,
               std::shared_ptr<void* const> stream)
      : CudaChain(chain, vocab, 2, device, memory, std::move(stream)),
        sampling_(chain.sampling),
        probs_(memory.probs.rows(chain.count)) {
    SPECDEC_CHECK(
        !sampling_.greedy() && sampling_.repetition_penalty == 1.0 && sampling_.logit_bias.empty(),
        "a chain that the host draws");
    std::vector<int32_t> random(kNumbers);
    std::memcpy(random.data(), chain.random->key.data(), sizeof(int64_t));
    std::memcpy(random.data() + 2, &chain.random->position, sizeof(int64_t));
    upload(random, behind_all());
  }

 private:
  at::Tensor draw_at(int64_t index, const at::Tensor& logits) override {
    double* row = probs_.mutable_data_ptr<double>() + index * vocab();
    cuda::TargetProbsTask target = cuda::target_probs_task(logits, sampling_, row);
    target.support = numbers_at(place(index)) + 1;
    run("target_probs", cuda::specdec_cuda_target_probs, target);
    cuda::DrawRowsTask drawn{};
    drawn.probs = row;
    drawn.key = reinterpret_cast<const uint32_t*>(numbers_at(behind_all()));
    drawn.positions = reinterpret_cast<const int64_t*>(numbers_at(behind_all()) + 2);
    drawn.tokens = numbers_at(place(index));
    drawn.purpose = static_cast<uint32_t>(Purpose::kDraft);
    drawn.choice = static_cast<uint32_t>(index);
    drawn.count = 1;
    drawn.vocab = cuda::narrow(vocab());
    drawn.names = names();
    drawn.named = drawn.names == nullptr ? nullptr : numbers_at(behind_results() + index);
    run("draw_rows", cuda::specdec_cuda_draw_rows, drawn);
    return token_at(drawn.names == nullptr ? place(index) : behind_results() + index);
  }
  void add_to(std::vector<int64_t>& key) const override {
    key.insert(key.end(),
               {address(probs_), sampling_.top_k, std::bit_cast<int64_t>(sampling_.temperature),
                std::bit_cast<int64_t>(sampling_.top_p), std::bit_cast<int64_t>(sampling_.min_p)});
  }
  bool is_valid(const int32_t* results) const override { return results[1] != 0; }
  at::Tensor probs() const override { return probs_; }

  SamplingParams sampling_;
  at::Tensor probs_;  // [count, vocab]
};

}  // namespace

ChainMemory::ChainMemory(int64_t vocab, at::Device device)
    : results(kNumbers, at::TensorOptions(at::kInt).device(device)),
      probs(vocab, at::TensorOptions(at::kDouble).device(device)),
      workspace(argmax_workspace(vocab), at::TensorOptions(at::kFloat).device(device)) {}

std::unique_ptr<ChainDrawing> cuda_chain(const ChainRequest& chain, int64_t vocab,
                                         at::Device device, ChainMemory& memory,
                                         std::shared_ptr<void* const> stream) {
  if (chain.random) {
    return std::make_unique<SampledChain>(chain, vocab, device, memory, std::move(stream));
  }
  return std::make_unique<BestChain>(chain, vocab, device, memory, std::move(stream));
}

}  // namespace specdec
