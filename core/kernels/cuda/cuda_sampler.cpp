#include "core/kernels/cuda/cuda_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/cuda_chain.h"
#include "core/kernels/cuda/cuda_tree.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/cuda/sampler_tables.h"

namespace specdec {
namespace {

using cuda::narrow;

/// What the kernels find out about a draft of n nodes, in memory that is read back at once.
struct SamplerResults {
  at::Tensor memory;  ///< int32: path [n], support [n], accepted, next; with masks 2 [n] float64
  int64_t nodes;

  SamplerResults(int64_t n, bool with_masses, at::Device device)
      : memory(at::empty({2 * n + 2 + (with_masses ? 4 * n : 0)},
                         at::TensorOptions(at::kInt).device(device))),
        nodes(n) {}
  int32_t* path() const { return memory.mutable_data_ptr<int32_t>(); }
  int32_t* support() const { return path() + nodes; }
  int32_t* accepted() const { return path() + 2 * nodes; }
  int32_t* next() const { return accepted() + 1; }
  double* allowed_masses() const { return reinterpret_cast<double*>(next() + 1); }
  double* token_masses() const { return allowed_masses() + nodes; }
};

/// What the kernels choose after n nodes, in memory that is read back at once.
struct ChoiceResults {
  at::Tensor
      memory;  ///< allowed masses [n] and token masses [n] float64, tokens [n], largest [n, 2]
  int64_t nodes;

  ChoiceResults(int64_t n, at::Device device)
      : memory(at::empty({7 * n}, at::TensorOptions(at::kInt).device(device))), nodes(n) {}
  double* allowed_masses() const {
    return reinterpret_cast<double*>(memory.mutable_data_ptr<int32_t>());
  }
  double* token_masses() const { return allowed_masses() + nodes; }
  int32_t* tokens() const { return memory.mutable_data_ptr<int32_t>() + 4 * nodes; }
  float* largest() const { return reinterpret_cast<float*>(tokens() + nodes); }
};

/// A decision in progress.
struct SamplerStep {
  const at::Tensor& logits;
  const SampledDraft& sampled;
  cuda::SamplerTables tables;
  SamplerResults results;
  int64_t first = 0;        ///< node from which on distributions are needed
  double* probs = nullptr;  ///< [n - first, vocab]

  int64_t nodes() const { return logits.size(0); }
  int64_t vocab() const { return logits.size(1); }
  bool is_chain_rule() const { return sampled.rule == DeviceRule::kBlock; }
};

void check_sampled(const at::Tensor& logits, const SampledDraft& sampled) {
  const Draft& draft = sampled.draft;
  SPECDEC_CHECK(logits.dim() == 2 && logits.size(0) == draft.size() &&
                    draft.child_probs.size() == draft.tokens.size() &&
                    (sampled.masks.empty() || sampled.masks.size() == draft.tokens.size()),
                "sampling: {} logits and {} masks for a draft of {} nodes", logits.numel(),
                sampled.masks.size(), draft.size());
  const SamplingParams& sampling = sampled.sampling;
  SPECDEC_CHECK(!sampling.greedy() && sampling.repetition_penalty == 1.0 &&
                    sampling.logit_bias.empty() && sampled.rule != DeviceRule::kNone,
                "sampling: a request that the host decides");
  const bool chains = sampled.rule == DeviceRule::kBlock || sampled.rule == DeviceRule::kDraw;
  for (int64_t node = 0; chains && node < draft.size(); ++node) {
    SPECDEC_CHECK(draft.parents[static_cast<size_t>(node)] == node - 1,
                  "this rule takes chains only, and node {} of this draft follows node {}", node,
                  draft.parents[static_cast<size_t>(node)]);
  }
}

class CudaSampler final : public DeviceSampler {
 public:
  CudaSampler(at::Device device, std::shared_ptr<void* const> stream)
      : device_(device), stream_(std::move(stream)) {}

  std::optional<DeviceDecision> decide(const at::Tensor& logits,
                                       const SampledDraft& sampled) override {
    check_sampled(logits, sampled);
    const int64_t nodes = logits.size(0);
    const int64_t first = sampled.rule == DeviceRule::kDraw ? nodes - 1 : 0;
    const SamplerStep step{
        .logits = logits,
        .sampled = sampled,
        .tables = cuda::upload_tables(sampled, device_),
        .results = SamplerResults(nodes, !sampled.masks.empty(), device_),
        .first = first,
        .probs = reserve((nodes - first + kWorkspaceRows) * logits.size(1)),
    };
    find_probs(step);
    switch (sampled.rule) {
      case DeviceRule::kRejection:
        verify_tree(step);
        break;
      case DeviceRule::kBlock:
        verify_block(step);
        break;
      default:
        follow_drawn(step);
    }
    if (!sampled.masks.empty()) {
      find_masses(step);
    }
    return read(step);
  }

  std::optional<DeviceChoices> choose(const at::Tensor& logits,
                                      std::span<const NodeMask> masks) override {
    SPECDEC_CHECK(logits.dim() == 2 && logits.size(0) == std::ssize(masks),
                  "sampling: {} logits and {} masks", logits.numel(), masks.size());
    const cuda::UploadedMasks uploaded = cuda::upload_masks(masks, device_);
    const ChoiceResults results(logits.size(0), device_);
    cuda::BestAllowedTask best{};
    best.logits = cuda::floats(logits);
    best.tokens = results.tokens();
    best.largest = results.largest();
    best.stride = logits.size(1);
    best.count = narrow(logits.size(0));
    best.vocab = narrow(logits.size(1));
    best.masks = uploaded.masks;
    cuda::run_kernel(device_, "best_allowed", cuda::specdec_cuda_best_allowed, best);
    cuda::LogMassesTask masses{};
    masses.logits = best.logits;
    masses.chosen = best.tokens;
    masses.allowed = results.allowed_masses();
    masses.token = results.token_masses();
    masses.stride = best.stride;
    masses.temperature = 1.0;
    masses.nodes = best.count;
    masses.vocab = best.vocab;
    masses.masks = uploaded.masks;
    cuda::run_kernel(device_, "log_masses", cuda::specdec_cuda_log_masses, masses);
    return read(results);
  }

  std::unique_ptr<ChainDrawing> begin_chain(const ChainRequest& chain, int64_t vocab) override {
    return cuda_chain(chain, vocab, device_,
                      chain_memory_.try_emplace(vocab, vocab, device_).first->second, stream_);
  }
  std::unique_ptr<DraftTreeDrawing> begin_tree(const TreeRequest& tree, int64_t vocab) override {
    return cuda_tree(tree, vocab, device_,
                     tree_memory_.try_emplace(vocab, vocab, device_).first->second, stream_);
  }
  std::optional<DeviceCandidates> rank(const at::Tensor& logits, const SamplingParams& sampling,
                                       int64_t count, std::span<const NodeMask> masks) override {
    return cuda_rank(logits, sampling, count, masks);
  }

 private:
  static constexpr int64_t kWorkspaceRows = 2;  // residuals of both distributions

  double* reserve(int64_t numbers) {
    if (!memory_.defined() || memory_.numel() < numbers) {
      memory_ = at::Tensor();  // before the new one is taken
      memory_ = at::empty({numbers}, at::TensorOptions(at::kDouble).device(device_));
    }
    return memory_.mutable_data_ptr<double>();
  }

  void find_probs(const SamplerStep& step) const {
    cuda::TargetProbsTask task =
        cuda::target_probs_task(step.logits.narrow(0, step.first, step.nodes() - step.first),
                                step.sampled.sampling, step.probs);
    task.masks = step.tables.masks;
    if (task.masks.of_row != nullptr) {
      task.masks.of_row += step.first;
      task.masks.exception_starts += step.first;
    }
    task.support = step.results.support() + step.first;
    cuda::run_kernel(device_, "target_probs", cuda::specdec_cuda_target_probs, task);
  }

  /// Draws the token after each node, and follows the draft as long as it holds them.
  void follow_drawn(const SamplerStep& step) const {
    const cuda::SamplerTables& tables = step.tables;
    cuda::DrawRowsTask drawn{};
    drawn.probs = step.probs;
    drawn.key = tables.key;
    drawn.positions = tables.positions + step.first;
    drawn.tokens = tables.choices + step.first;
    drawn.purpose = static_cast<uint32_t>(Purpose::kSample);
    drawn.count = narrow(step.nodes() - step.first);
    drawn.vocab = narrow(step.vocab());
    cuda::run_kernel(device_, "draw_rows", cuda::specdec_cuda_draw_rows, drawn);
    cuda::MatchTreesTask matched{};
    matched.best = tables.choices;
    matched.tokens = tables.tokens;
    matched.parents = tables.parents;
    matched.sizes = tables.nodes;
    matched.path = step.results.path();
    matched.accepted = step.results.accepted();
    matched.next = step.results.next();
    matched.trees = 1;
    matched.capacity = narrow(step.nodes() - 1);
    cuda::run_kernel(device_, "match_trees", cuda::specdec_cuda_match_trees, matched);
  }

  void verify_tree(const SamplerStep& step) const {
    const at::Tensor drafted =
        cuda::upload_rows(cuda::drafted_rows(step.sampled.draft), step.vocab(), device_);
    const cuda::SamplerTables& tables = step.tables;
    cuda::VerifyTreesTask task{};
    task.target = step.probs;
    task.drafted = drafted.const_data_ptr<double>();
    task.drawn_from = tables.drawn_from;
    task.tokens = tables.tokens;
    task.parents = tables.parents;
    task.sizes = tables.nodes;
    task.keys = tables.key;
    task.positions = tables.positions;
    task.workspace = step.probs + step.nodes() * step.vocab();
    task.path = step.results.path();
    task.accepted = step.results.accepted();
    task.next = step.results.next();
    task.trees = 1;
    task.capacity = narrow(step.nodes() - 1);
    task.vocab = narrow(step.vocab());
    cuda::run_kernel(device_, "verify_trees", cuda::specdec_cuda_verify_trees, task);
  }

  void verify_block(const SamplerStep& step) const {
    const std::vector<TokenProbs> rows = cuda::chain_rows(step.sampled.draft, step.vocab());
    const at::Tensor drafted = cuda::upload_rows(rows, step.vocab(), device_);
    const cuda::SamplerTables& tables = step.tables;
    cuda::VerifyChainsTask task{};
    task.target = step.probs;
    task.drafted = rows.empty() ? nullptr : drafted.const_data_ptr<double>();
    task.tokens = tables.tokens + 1;
    task.lengths = tables.length;
    task.keys = tables.key;
    task.positions = tables.positions;
    task.accepted = step.results.accepted();
    task.next = step.results.next();
    task.chains = 1;
    task.capacity = narrow(step.nodes() - 1);
    task.vocab = narrow(step.vocab());
    cuda::run_kernel(device_, "verify_blocks", cuda::specdec_cuda_verify_blocks, task);
  }

  void find_masses(const SamplerStep& step) const {
    cuda::LogMassesTask task{};
    task.logits = cuda::floats(step.logits);
    task.tokens = step.tables.tokens;
    task.path = step.is_chain_rule() ? step.tables.chain : step.results.path();
    task.accepted = step.results.accepted();
    task.next = step.results.next();
    task.allowed = step.results.allowed_masses();
    task.token = step.results.token_masses();
    task.stride = step.vocab();
    task.temperature = step.sampled.sampling.temperature;
    task.nodes = narrow(step.nodes());
    task.vocab = narrow(step.vocab());
    task.masks = step.tables.masks;
    cuda::run_kernel(device_, "log_masses", cuda::specdec_cuda_log_masses, task);
  }

  static std::optional<DeviceChoices> read(const ChoiceResults& results) {
    ChoiceResults found = results;
    found.memory = found.memory.cpu();
    DeviceChoices choices{
        .best = {}, .masses = {}, .read_backs = {1, static_cast<int64_t>(found.memory.nbytes())}};
    for (int64_t node = 0; node < found.nodes; ++node) {
      const Token token = found.tokens()[node];
      if (token < 0) {
        return std::nullopt;
      }
      const float* largest = found.largest() + 2 * node;
      choices.best.push_back({token, static_cast<double>(largest[0]) - largest[1]});
      choices.masses.push_back(
          {.allowed = found.allowed_masses()[node], .token = found.token_masses()[node]});
    }
    return choices;
  }

  static std::optional<DeviceDecision> read(const SamplerStep& step) {
    SamplerResults found = step.results;
    found.memory = found.memory.cpu();
    DeviceDecision decision{
        .verified = {.path = chain_path(*found.accepted() + 1), .next = *found.next()},
        .masses = {},
        .read_backs = {1, static_cast<int64_t>(found.memory.nbytes())}};
    const int32_t* support = found.support();
    const int32_t* end = support + found.nodes;
    if (step.sampled.rule == DeviceRule::kBlock && std::find(support, end, 0) != end) {
      return std::nullopt;  // its choices depend on all rows
    }
    for (size_t i = 0; i < decision.verified.path.size(); ++i) {
      int64_t& node = decision.verified.path[i];
      node = step.is_chain_rule() ? node : found.path()[i];
      if (node >= step.first && found.support()[node] == 0) {
        return std::nullopt;
      }
      if (!step.sampled.masks.empty()) {
        decision.masses.push_back(
            {.allowed = found.allowed_masses()[i], .token = found.token_masses()[i]});
      }
    }
    return decision;
  }

  at::Device device_;
  std::shared_ptr<void* const> stream_;          // of chains and trees
  at::Tensor memory_;                            // probabilities of a draft, and a workspace
  std::map<int64_t, ChainMemory> chain_memory_;  // by vocabulary
  std::map<int64_t, TreeMemory> tree_memory_;    // likewise
};

}  // namespace

std::shared_ptr<DeviceSampler> cuda_sampler(at::Device device,
                                            std::shared_ptr<void* const> stream) {
  return std::make_shared<CudaSampler>(device, std::move(stream));
}

}  // namespace specdec
