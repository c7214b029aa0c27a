#include "core/kernels/cuda/cuda_tree.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/draft_vocabulary.h"
#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/cuda/sampler_tables.h"

namespace specdec {
namespace {

/// What siblings are found by: a greedy distribution ranks only its best token.
SamplingParams sibling_sampling(const SamplingParams& sampling) {
  SPECDEC_CHECK(sampling.repetition_penalty == 1.0 && sampling.logit_bias.empty(),
                "siblings that the host finds");
  SamplingParams own = sampling;
  own.temperature = sampling.greedy() ? 1.0 : sampling.temperature;
  return own;
}

bool cuts_tokens(const SamplingParams& sampling, int64_t vocab) {
  return (sampling.top_k > 0 && sampling.top_k < vocab) || sampling.top_p < 1.0 ||
         sampling.min_p > 0.0;
}

/// Integers that go up at once.
class IntegerBlock {
 public:
  /// Returns where they begin.
  template <class Integer>
  int64_t add(const std::vector<Integer>& integers) {
    const int64_t begin = std::ssize(all_);
    all_.insert(all_.end(), integers.begin(), integers.end());
    return begin;
  }
  at::Tensor upload(at::Device device) const {
    return at::tensor(c10::ArrayRef<int32_t>(all_), at::kInt).to(device);
  }

 private:
  std::vector<int32_t> all_;
};

/// The masks of rows of logits on their device; of none without masks.
cuda::UploadedMasks masks_of(const at::Tensor& logits, std::span<const NodeMask> masks) {
  SPECDEC_CHECK(masks.empty() || std::ssize(masks) == logits.size(0),
                "{} masks of {} rows of logits", masks.size(), logits.size(0));
  return masks.empty() ? cuda::UploadedMasks() : cuda::upload_masks(masks, logits.device());
}

/// The distributions of rows of logits, [rows, vocab] float64 at `probs`.
void find_probs(const at::Tensor& logits, const SamplingParams& sampling,
                const cuda::RowMasks& masks, double* probs, int32_t* support) {
  cuda::TargetProbsTask task = cuda::target_probs_task(logits, sampling, probs);
  task.masks = masks;
  task.support = support;
  cuda::run_kernel(logits.device(), "target_probs", cuda::specdec_cuda_target_probs, task);
}

/// Siblings of `rows` rows of logits that are best tokens; without ranks, validity and places.
cuda::BestSiblingsTask best_task(const at::Tensor& logits, const SamplingParams& sampling,
                                 const cuda::RowMasks& masks, const double* probs) {
  cuda::BestSiblingsTask task{};
  task.masks = masks;
  task.logits = cuda::floats(logits);
  task.probs = probs;
  task.stride = logits.size(1);
  task.temperature = sampling.temperature;
  task.vocab = cuda::narrow(logits.size(1));
  task.siblings.rows = cuda::narrow(logits.size(0));
  return task;
}

class CudaTree final : public DraftTreeDrawing {
 public:
  CudaTree(const TreeRequest& tree, int64_t vocab, at::Device device)
      : device_(device),
        vocab_(vocab),
        nodes_(std::ssize(tree.parents)),
        tokens_(tree.parents.size(), -1),
        levels_(branching_nodes(tree.parents)),
        sampling_(sibling_sampling(tree.sampling)),
        names_(tree.vocabulary != nullptr ? tree.vocabulary->ids() : at::Tensor()) {
    SPECDEC_CHECK(!levels_.empty() && vocab > 0 && tree.ranks.size() == tree.parents.size(),
                  "a tree of {} nodes with {} ranks over {} tokens", nodes_, tree.ranks.size(),
                  vocab);
    tokens_.front() = 0;
    upload(tree);
    results_ = at::zeros({nodes_ + std::ssize(rows_)}, at::TensorOptions(at::kInt).device(device));
    if (tree.random) {
      SPECDEC_CHECK(!tree.sampling.greedy(), "a greedy tree is not drawn");
      probs_ = empty_probs(std::ssize(rows_));
    }
  }

  at::Tensor draw(const at::Tensor& logits, std::span<const NodeMask> masks) override {
    SPECDEC_CHECK(level_ < levels_.size() && logits.dim() == 2 &&
                      logits.size(0) == std::ssize(levels_[level_]) && logits.size(1) == vocab_,
                  "level {} of a tree of {} levels is found by {} logits", level_, levels_.size(),
                  logits.numel());
    const cuda::UploadedMasks allowed = masks_of(logits, masks);
    if (probs_.defined()) {
      draw_siblings(logits, allowed.masks);
    } else {
      find_best(logits, allowed.masks);
    }
    for (size_t i = 0; i < levels_[level_].size(); ++i) {
      closed_.push_back(!masks.empty() && masks[i].closed);
    }
    first_row_ += std::ssize(levels_[level_++]);
    if (level_ == levels_.size()) {
      return {};
    }
    const at::Tensor nodes = tables_.narrow(0, parents_ + first_row_, std::ssize(levels_[level_]));
    return results_.index_select(0, nodes).clamp_min(0);
  }

  std::optional<DrawnTree> read() override {
    SPECDEC_CHECK(read_rows_ < first_row_, "no level of a tree was found since it was read");
    const int64_t rows = first_row_ - read_rows_;
    const int64_t first = children_[static_cast<size_t>(read_rows_)];
    const int64_t count = children_[static_cast<size_t>(first_row_)] - first;
    const at::Tensor found = found_of(first, count, rows).cpu();
    read_backs_ += {1, static_cast<int64_t>(found.nbytes())};
    const auto* tokens = found.const_data_ptr<int32_t>();
    std::copy_n(tokens, count, tokens_.begin() + first);
    for (const int32_t* valid = tokens + count; read_rows_ < first_row_; ++read_rows_, ++valid) {
      const auto row = static_cast<size_t>(read_rows_);
      if (*valid == 0 && !closed_[row] && tokens_[static_cast<size_t>(rows_[row])] >= 0) {
        return std::nullopt;
      }
    }
    return DrawnTree{.tokens = tokens_, .probs = probs_, .read_backs = read_backs_};
  }

 private:
  void upload(const TreeRequest& tree) {
    for (const std::vector<int64_t>& level : levels_) {
      rows_.insert(rows_.end(), level.begin(), level.end());
    }
    for (int64_t node = 1; node < nodes_; ++node) {
      const size_t child = static_cast<size_t>(node);
      if (node == 1 || tree.parents[child] != tree.parents[child - 1]) {
        children_.push_back(node);
      }
    }
    children_.push_back(nodes_);
    for (size_t row = 0; row < rows_.size(); ++row) {
      most_ = std::max(most_, children_[row + 1] - children_[row]);
    }
    std::vector<int32_t> random(4);
    if (tree.random) {
      std::memcpy(random.data(), tree.random->key.data(), 2 * sizeof(int32_t));
      std::memcpy(random.data() + 2, &tree.random->position, sizeof(int64_t));
    }
    IntegerBlock block;
    block.add(random);
    parents_ = block.add(rows_);
    first_children_ = block.add(children_);
    ranks_ = block.add(std::vector(tree.ranks.begin(), tree.ranks.end()));
    tables_ = block.upload(device_);
  }

  /// The tokens of `count` nodes from `first` on, and whether the logits of so many rows from the
  /// next to be read are valid: neighbours where these are all.
  at::Tensor found_of(int64_t first, int64_t count, int64_t rows) const {
    const bool all = rows == std::ssize(rows_);
    return all ? results_.narrow(0, first, count + rows)
               : at::cat({results_.narrow(0, first, count),
                          results_.narrow(0, nodes_ + read_rows_, rows)});
  }
  at::Tensor empty_probs(int64_t rows) const {
    return at::empty({rows, vocab_}, at::TensorOptions(at::kDouble).device(device_));
  }
  const int32_t* table(int64_t begin) const { return tables_.const_data_ptr<int32_t>() + begin; }
  /// Of the level's rows: see TargetProbsTask::support.
  int32_t* support() const { return results_.mutable_data_ptr<int32_t>() + nodes_ + first_row_; }
  cuda::SiblingRows siblings() const {
    return {table(parents_) + first_row_, table(first_children_) + first_row_,
            results_.mutable_data_ptr<int32_t>(),
            names_.defined() ? names_.const_data_ptr<int32_t>() : nullptr,
            cuda::narrow(std::ssize(levels_[level_]))};
  }

  void draw_siblings(const at::Tensor& logits, const cuda::RowMasks& masks) const {
    double* probs = probs_.mutable_data_ptr<double>() + first_row_ * vocab_;
    find_probs(logits, sampling_, masks, probs, support());
    cuda::DrawSiblingsTask task{};
    task.probs = probs;
    task.support = support();
    task.key = reinterpret_cast<const uint32_t*>(table(0));
    task.position = reinterpret_cast<const int64_t*>(table(2));
    task.siblings = siblings();
    task.purpose = static_cast<uint32_t>(Purpose::kDraft);
    task.most = cuda::narrow(most_);
    task.vocab = cuda::narrow(vocab_);
    cuda::run_kernel(device_, "draw_siblings", cuda::specdec_cuda_draw_siblings, task);
  }

  void find_best(const at::Tensor& logits, const cuda::RowMasks& masks) const {
    at::Tensor probs;
    if (cuts_tokens(sampling_, vocab_)) {
      probs = empty_probs(logits.size(0));
      find_probs(logits, sampling_, masks, probs.mutable_data_ptr<double>(), nullptr);
    }
    cuda::BestSiblingsTask task = best_task(
        logits, sampling_, masks, probs.defined() ? probs.const_data_ptr<double>() : nullptr);
    task.ranks = table(ranks_);
    task.valid = support();
    task.siblings = siblings();
    cuda::run_kernel(device_, "best_siblings", cuda::specdec_cuda_best_siblings, task);
  }

  at::Device device_;
  int64_t vocab_, nodes_;
  std::vector<Token> tokens_;                 // [nodes] that were read
  std::vector<std::vector<int64_t>> levels_;  // nodes with children
  std::vector<int64_t> rows_;                 // the same, one level after the other
  std::vector<int64_t> children_;             // [rows + 1] where those of a row begin
  std::vector<bool> closed_;                  // [rows found] NodeMask::closed
  SamplingParams sampling_;
  at::Tensor names_;   // of the columns; undefined = each is its own
  at::Tensor tables_;  // int32: random numbers' key and position, then what follows
  int64_t parents_ = 0, first_children_ = 0, ranks_ = 0;  // where they begin
  int64_t most_ = 0;                                      // children of a node
  at::Tensor results_;     // int32: [nodes] tokens, [rows] whether the logits after them are valid
  at::Tensor probs_;       // [rows, vocab]; undefined for best tokens
  size_t level_ = 0;       // the next
  int64_t first_row_ = 0;  // its first
  int64_t read_rows_ = 0;  // whose children were read
  ReadBacks read_backs_;
};

}  // namespace

std::unique_ptr<DraftTreeDrawing> cuda_tree(const TreeRequest& tree, int64_t vocab,
                                            at::Device device) {
  return std::make_unique<CudaTree>(tree, vocab, device);
}

std::optional<DeviceCandidates> cuda_rank(const at::Tensor& logits, const SamplingParams& sampling,
                                          int64_t count, std::span<const NodeMask> masks) {
  SPECDEC_CHECK(logits.dim() == 2 && count > 0, "the best {} tokens of {} logits", count,
                logits.numel());
  const int64_t rows = logits.size(0);
  const auto device = logits.device();
  const SamplingParams own = sibling_sampling(sampling);
  const at::Tensor probs = at::empty(logits.sizes(), logits.options().dtype(at::kDouble));
  const cuda::UploadedMasks allowed = masks_of(logits, masks);
  find_probs(logits, own, allowed.masks, probs.mutable_data_ptr<double>(), nullptr);

  // The children of a root: `count` of each row.
  std::vector<int64_t> first_children, ranks = {0};
  for (int64_t row = 0; row <= rows; ++row) {
    first_children.push_back(1 + row * count);
  }
  for (int64_t child = 0; child < rows * count; ++child) {
    ranks.push_back(child % count);
  }
  IntegerBlock block;
  block.add(std::vector<int64_t>(static_cast<size_t>(rows)));  // the parents
  const int64_t children_begin = block.add(first_children);
  const int64_t ranks_begin = block.add(ranks);
  const at::Tensor tables = block.upload(device);
  // Probabilities, the root, the children's tokens, whether the rows are valid.
  const int64_t found_size = rows * count;
  const at::Tensor results =
      at::zeros({3 * found_size + 1 + rows}, at::TensorOptions(at::kInt).device(device));
  const at::Tensor tokens = results.narrow(0, 2 * found_size, 1 + found_size);
  cuda::BestSiblingsTask task =
      best_task(logits, own, allowed.masks, probs.const_data_ptr<double>());
  task.ranks = tables.const_data_ptr<int32_t>() + ranks_begin;
  task.valid = results.mutable_data_ptr<int32_t>() + 3 * found_size + 1;
  task.siblings.parents = tables.const_data_ptr<int32_t>();
  task.siblings.first_children = tables.const_data_ptr<int32_t>() + children_begin;
  task.siblings.tokens = tokens.mutable_data_ptr<int32_t>();
  cuda::run_kernel(device, "best_siblings", cuda::specdec_cuda_best_siblings, task);
  const at::Tensor columns = tokens.narrow(0, 1, found_size).view({rows, count});
  results.narrow(0, 0, 2 * found_size)
      .view(at::kDouble)
      .copy_(probs.gather(1, columns.clamp_min(0).to(at::kLong)).flatten());

  const at::Tensor found = results.cpu();
  const auto* masses = reinterpret_cast<const double*>(found.const_data_ptr<int32_t>());
  const int32_t* ids = found.const_data_ptr<int32_t>() + 2 * found_size + 1;
  const int32_t* valid = ids + found_size;
  for (int64_t row = 0; row < rows; ++row) {
    if (valid[row] == 0 && (masks.empty() || !masks[static_cast<size_t>(row)].closed)) {
      return std::nullopt;
    }
  }
  DeviceCandidates candidates{
      .best = std::vector<std::vector<Candidate>>(static_cast<size_t>(rows)),
      .read_backs = {1, static_cast<int64_t>(found.nbytes())}};
  for (int64_t child = 0; child < found_size; ++child) {
    if (ids[child] >= 0) {
      candidates.best[static_cast<size_t>(child / count)].push_back({ids[child], masses[child]});
    }
  }
  return candidates;
}

}  // namespace specdec
