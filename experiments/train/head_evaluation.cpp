#include "experiments/train/head_evaluation.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "experiments/terminal/interrupt.h"
#include "experiments/train/head_loss.h"

namespace specdec {
namespace {

/// Stops an evaluation of all text, the last one of a training, whose state is saved by then.
void stop_last(int64_t most) {
  if (most == 0) {
    InterruptGuard::check();
  }
}

/// The head's distribution over the target's vocabulary.
at::Tensor full_distribution(const at::Tensor& logits, const at::Tensor& draft_tokens,
                             int64_t vocab) {
  const auto distribution = at::softmax(logits, -1);
  if (!draft_tokens.defined()) {
    return distribution;
  }
  auto sizes = distribution.sizes().vec();
  sizes.back() = vocab;
  return at::zeros(sizes, distribution.options()).index_copy(-1, draft_tokens, distribution);
}

class DepthSums {
 public:
  DepthSums(const HeadTraining& head, const TransformerTensors& target,
            const HeadTrainConfig& config)
      : head_(head), target_(target), depth_(config.evaluate_depth) {}

  /// Adds a batch of tokens [rows, T + 1] int64.
  void add(const at::Tensor& tokens) {
    add(target_batch(target_, tokens.to(target_.place.device), {}));
  }

  void add(const TargetBatch& batch) {
    const auto outputs = head_.forward(batch, depth_);
    const auto distribution = guessed_distribution(batch, guessed_places(batch, 0), {}, target_);
    sums_.resize(std::max(sums_.size(), outputs.size()));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const GuessedPlaces guessed = guessed_places(batch, static_cast<int64_t>(i) + 1);
      const auto p = distribution.index_select(0, guessed.among);
      const auto q = full_distribution(outputs[i].logits, head_.draft_tokens(), p.size(-1));
      sums_[i].tokens += q.size(0);
      sums_[i].agreement += p.argmax(-1).eq(q.argmax(-1)).sum().item<double>();
      sums_[i].overlap += at::minimum(p, q).sum().item<double>();
      if (outputs[i].groups.defined()) {
        const auto scored = scored_tokens(outputs[i].groups, p);
        sums_[i].coverage += (p * scored).sum().item<double>();
        sums_[i].recall += scored.gather(1, q.argmax(-1, true)).sum().item<double>();
      } else {
        sums_[i].coverage += covered(p).sum().item<double>();
      }
    }
  }

  std::vector<DepthAccuracy> means() const {
    std::vector<DepthAccuracy> out = sums_;
    for (DepthAccuracy& depth : out) {
      const double tokens = static_cast<double>(std::max<int64_t>(depth.tokens, 1));
      depth.agreement /= tokens;
      depth.overlap /= tokens;
      depth.coverage /= tokens;
      depth.recall /= tokens;
    }
    return out;
  }

 private:
  /// [n, vocab] 1 for tokens of the groups that are chosen, else 0.
  at::Tensor scored_tokens(const at::Tensor& scores, const at::Tensor& like) const {
    const TokenGroups groups = head_.groups();
    const auto chosen = std::get<1>(scores.topk(groups.chosen, 1));
    const auto tokens = groups.tokens.index_select(0, chosen.flatten()).view({like.size(0), -1});
    return at::zeros_like(like).scatter(1, tokens, 1.0);
  }

  at::Tensor covered(const at::Tensor& distribution) const {
    const at::Tensor tokens = head_.draft_tokens();
    return tokens.defined() ? distribution.index_select(-1, tokens) : distribution;
  }

  const HeadTraining& head_;
  const TransformerTensors& target_;
  int64_t depth_;
  std::vector<DepthAccuracy> sums_;
};

at::Tensor as_row(const std::vector<Token>& window) {
  return at::tensor(at::IntArrayRef(std::vector<int64_t>(window.begin(), window.end())))
      .view({1, -1});
}

}  // namespace

TargetBatch target_batch(const TransformerTensors& target, const at::Tensor& tokens,
                         std::optional<at::ScalarType> matmul_dtype) {
  const c10::NoGradGuard frozen;
  TargetBatch batch{.tokens = tokens, .target = {}, .distribution = {}};
  batch.target = reference_forward(target, tokens.narrow(1, 0, tokens.size(1) - 1), matmul_dtype);
  batch.distribution = at::softmax(decoded_logits(batch.target.logits, target), -1);
  return batch;
}

std::map<std::string, std::vector<DepthAccuracy>> evaluate_head(
    const HeadTraining& head, const TransformerTensors& target, const TextData& data,
    const SelfGenerated& generated, const HeadTrainConfig& config, int64_t max_windows) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, std::vector<DepthAccuracy>> result;
  for (const auto& [kind, held] : data.held_out()) {
    const auto all = static_cast<int64_t>(held.windows.size());
    const int64_t windows = max_windows > 0 ? std::min(all, max_windows) : all;
    DepthSums sums(head, target, config);
    for (int64_t i = 0; i < windows; ++i) {
      stop_last(max_windows);
      const auto& window = held.windows[static_cast<size_t>(i * all / windows)];
      if (static_cast<int64_t>(window.size()) > config.evaluate_depth + 1) {
        sums.add(as_row(window));
      }
    }
    result[kind] = sums.means();
  }
  for (const auto& [kind, rows] : generated.held_out) {
    DepthSums sums(head, target, config);
    for (int64_t row = 0; row < rows.size(0); ++row) {
      stop_last(max_windows);
      sums.add(rows.narrow(0, row, 1));
    }
    result[kind + ", by the target"] = sums.means();
  }
  return result;
}

std::map<std::string, std::vector<DepthAccuracy>> evaluate_head(const HeadTraining& head,
                                                                const TransformerTensors& target,
                                                                const AnswerSet& answers,
                                                                const HeadTrainConfig& config,
                                                                int64_t max_answers) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, DepthSums> sums;
  std::map<std::string, int64_t> seen;
  for (const AnswerRecord& record : answers.held_out()) {
    stop_last(max_answers);
    const std::string kind = answer_kind(record);
    if (max_answers == 0 || seen[kind]++ < max_answers) {
      sums.try_emplace(kind, head, target, config).first->second.add(answers.batch({&record}));
    }
  }
  std::map<std::string, std::vector<DepthAccuracy>> result;
  for (const auto& [kind, all] : sums) {
    result[kind] = all.means();
  }
  return result;
}

}  // namespace specdec
