#include "core/kernels/cuda/cuda_tree.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "core/draft_vocabulary.h"
#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/cuda/sampler_tables.h"
#include "core/kernels/staged_upload.h"

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
  /// Adds integers; returns where they begin.
  template <class Integer>
  int64_t add(const std::vector<Integer>& integers) {
    const int64_t begin = std::ssize(all_);
    all_.insert(all_.end(), integers.begin(), integers.end());
    return begin;
  }
  int64_t size() const { return std::ssize(all_); }
  /// Copies the integers to memory on the device.
  void upload(const at::Tensor& to) const { specdec::upload(all_.data(), to); }

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
cuda::TargetProbsTask probs_task(const at::Tensor& logits, const SamplingParams& sampling,
                                 const cuda::RowMasks& masks, double* probs) {
  cuda::TargetProbsTask task = cuda::target_probs_task(logits, sampling, probs);
  task.masks = masks;
  return task;
}

/// Siblings of `rows` rows of logits that are best tokens; without ranks, validity and places.
cuda::BestSiblingsTask best_task(const at::Tensor& logits, const SamplingParams& sampling,
                                 const cuda::RowMasks& masks, const double* probs) {
  const cuda::LogitRows rows = cuda::logit_rows(logits);
  cuda::BestSiblingsTask task{};
  task.masks = masks;
  task.logits = rows.first;
  task.probs = probs;
  task.stride = rows.stride;
  task.temperature = sampling.temperature;
  task.vocab = cuda::narrow(logits.size(1));
  task.siblings.rows = cuda::narrow(logits.size(0));
  return task;
}

/// int32 numbers of a tree's memory for each node, the most that CudaTree needs.
constexpr int64_t kNodeNumbers = 8;

class CudaTree final : public DraftTreeDrawing {
 public:
  CudaTree(const TreeRequest& tree, int64_t vocab, at::Device device, TreeMemory& memory,
           std::shared_ptr<void* const> stream)
      : device_(device),
        stream_(std::move(stream)),
        vocab_(vocab),
        nodes_(std::ssize(tree.parents)),
        draws_(tree.random.has_value()),
        tokens_(tree.parents.size(), -1),
        evaluated_(evaluated_nodes(tree.parents)),
        closed_(evaluated_.nodes.size()),
        sampling_(sibling_sampling(tree.sampling)),
        names_(tree.vocabulary != nullptr ? tree.vocabulary->ids() : at::Tensor()) {
    find_children(tree);
    SPECDEC_CHECK(depth() > 0 && vocab > 0 && tree.ranks.size() == tree.parents.size(),
                  "a tree of {} nodes with {} ranks over {} tokens", nodes_, tree.ranks.size(),
                  vocab);
    SPECDEC_CHECK(!draws_ || !tree.sampling.greedy(), "a greedy tree is not drawn");
    tokens_.front() = 0;
    memory_ = memory.numbers.rows(nodes_).view({-1});
    upload(tree);
    if (draws_ || cuts_tokens(sampling_, vocab_)) {
      probs_ = memory.probs.rows(draws_ ? rows() : widest());
    }
  }

  at::Tensor draw(int64_t level, const at::Tensor& logits,
                  std::span<const NodeMask> masks) override {
    SPECDEC_CHECK(level >= 0 && level < depth() && logits.dim() == 2 &&
                      logits.size(0) == rows_of(level) && logits.size(1) == vocab_,
                  "level {} of a tree of {} levels is found by {} logits", level, depth(),
                  logits.numel());
    const cuda::UploadedMasks allowed = masks_of(logits, masks);
    if (draws_) {
      draw_siblings(level, logits, allowed.masks);
    } else {
      find_best(level, logits, allowed.masks);
    }
    for (size_t i = 0; i < masks.size(); ++i) {
      closed_[static_cast<size_t>(first_row(level)) + i] = masks[i].closed;
    }
    return level + 1 == depth()
               ? at::Tensor()
               : memory_.narrow(0, fed_ + first_row(level + 1), rows_of(level + 1));
  }

  at::Tensor parents_in_level(int64_t level) const override {
    SPECDEC_CHECK(level > 0 && level < depth(), "level {} of a tree of {} levels follows nothing",
                  level, depth());
    return memory_.narrow(0, sources_ + first_row(level), rows_of(level));
  }

  std::vector<int64_t> key() const override {
    if (nodes_ > ResultMemory::kMostRows) {
      return {};
    }
    // No chain has so many tokens.
    std::vector<int64_t> key = {-nodes_, vocab_, draws_ ? 1 : 0, most_};
    for (const at::Tensor* memory : {&memory_, &names_, &probs_}) {
      key.push_back(memory->defined() ? reinterpret_cast<intptr_t>(memory->const_data_ptr()) : 0);
    }
    key.insert(key.end(), {sampling_.top_k, std::bit_cast<int64_t>(sampling_.temperature),
                           std::bit_cast<int64_t>(sampling_.top_p),
                           std::bit_cast<int64_t>(sampling_.min_p), depth()});
    key.insert(key.end(), evaluated_.firsts.begin(), evaluated_.firsts.end());
    return key;
  }

  std::optional<DrawnTree> read(int64_t levels) override {
    SPECDEC_CHECK(levels > 0 && levels <= depth() && read_rows_ < first_row(levels),
                  "{} levels of a tree of {} are read, of which {} nodes were", levels, depth(),
                  read_rows_);
    const int64_t end = first_row(levels);
    const int64_t first = children_[static_cast<size_t>(read_rows_)];
    const int64_t count = children_[static_cast<size_t>(end)] - first;
    const at::Tensor found = found_of(first, count, end - read_rows_).cpu();
    read_backs_ += {1, static_cast<int64_t>(found.nbytes())};
    const auto* tokens = found.const_data_ptr<int32_t>();
    std::copy_n(tokens, count, tokens_.begin() + first);
    for (const int32_t* valid = tokens + count; read_rows_ < end; ++read_rows_, ++valid) {
      const auto row = static_cast<size_t>(read_rows_);
      if (*valid == 0 && !closed_[row] &&
          tokens_[static_cast<size_t>(evaluated_.nodes[row])] >= 0) {
        return std::nullopt;
      }
    }
    return DrawnTree{
        .tokens = tokens_, .probs = draws_ ? probs_ : at::Tensor(), .read_backs = read_backs_};
  }

 private:
  void find_children(const TreeRequest& tree) {
    for (int64_t node = 1; node < nodes_; ++node) {
      const size_t child = static_cast<size_t>(node);
      if (node == 1 || tree.parents[child] != tree.parents[child - 1]) {
        children_.push_back(node);
      }
    }
    children_.push_back(nodes_);
    for (size_t row = 0; row < evaluated_.nodes.size(); ++row) {
      most_ = std::max(most_, children_[row + 1] - children_[row]);
    }
  }

  void upload(const TreeRequest& tree) {
    std::vector<int32_t> random(4);
    if (draws_) {
      std::memcpy(random.data(), tree.random->key.data(), 2 * sizeof(int32_t));
      std::memcpy(random.data() + 2, &tree.random->position, sizeof(int64_t));
    }
    std::vector<int64_t> sources = {0};  // the root follows nothing
    for (int64_t level = 1; level < depth(); ++level) {
      const std::vector<int64_t> own = evaluated_.parents_in_level(level);
      sources.insert(sources.end(), own.begin(), own.end());
    }
    IntegerBlock block;
    block.add(random);
    parents_ = block.add(evaluated_.nodes);
    first_children_ = block.add(children_);
    ranks_ = block.add(std::vector(tree.ranks.begin(), tree.ranks.end()));
    places_ = block.add(evaluated_.places);
    sources_ = block.add(sources);
    found_ = block.add(std::vector<int32_t>{0});  // the root is there
    valid_ = found_ + nodes_;
    fed_ = valid_ + rows();
    SPECDEC_CHECK(fed_ + rows() <= memory_.size(0), "a tree of {} nodes needs {} numbers", nodes_,
                  fed_ + rows());
    block.upload(memory_.narrow(0, 0, found_ + 1));
  }

  int64_t depth() const { return evaluated_.levels(); }
  int64_t rows() const { return std::ssize(evaluated_.nodes); }
  int64_t first_row(int64_t level) const { return evaluated_.firsts[static_cast<size_t>(level)]; }
  int64_t rows_of(int64_t level) const { return evaluated_.size_of(level); }
  /// The tokens of `count` nodes from `first` on, and whether the logits of `next_rows` rows from
  /// the next to be read are valid: neighbours where these are all.
  at::Tensor found_of(int64_t first, int64_t count, int64_t next_rows) const {
    const bool all = next_rows == rows();
    return all ? memory_.narrow(0, found_ + first, count + next_rows)
               : at::cat({memory_.narrow(0, found_ + first, count),
                          memory_.narrow(0, valid_ + read_rows_, next_rows)});
  }
  int32_t* numbers(int64_t begin) const { return memory_.mutable_data_ptr<int32_t>() + begin; }
  /// Support of a level's rows: see TargetProbsTask::support.
  int32_t* support(int64_t level) const { return numbers(valid_ + first_row(level)); }
  /// Most rows of a level.
  int64_t widest() const {
    int64_t most = 0;
    for (int64_t level = 0; level < depth(); ++level) {
      most = std::max(most, rows_of(level));
    }
    return most;
  }
  /// Probabilities of a level's rows; nullptr where nobody asks for them. Those that best tokens
  /// are found by are read by no later level, so all levels share their memory.
  double* probs(int64_t level) const {
    const int64_t first = draws_ ? first_row(level) : 0;
    return probs_.defined() ? probs_.mutable_data_ptr<double>() + first * vocab_ : nullptr;
  }
  cuda::SiblingRows siblings(int64_t level) const {
    return {.parents = numbers(parents_ + first_row(level)),
            .first_children = numbers(first_children_ + first_row(level)),
            .tokens = numbers(found_),
            .names = names_.defined() ? names_.const_data_ptr<int32_t>() : nullptr,
            .rows = cuda::narrow(rows_of(level)),
            .fed_places = numbers(places_),
            .fed = numbers(fed_)};
  }

  template <class Task>
  void run(const char* op, int (*kernel)(const Task*, void*), const Task& task) const {
    cuda::run_kernel(device_, op, kernel, task, *stream_);
  }

  void draw_siblings(int64_t level, const at::Tensor& logits, const cuda::RowMasks& masks) const {
    cuda::TargetProbsTask target = probs_task(logits, sampling_, masks, probs(level));
    target.support = support(level);
    run("target_probs", cuda::specdec_cuda_target_probs, target);
    cuda::DrawSiblingsTask task{};
    task.probs = probs(level);
    task.support = support(level);
    task.key = reinterpret_cast<const uint32_t*>(numbers(0));
    task.position = reinterpret_cast<const int64_t*>(numbers(2));
    task.siblings = siblings(level);
    task.purpose = static_cast<uint32_t>(Purpose::kDraft);
    task.most = cuda::narrow(most_);
    task.vocab = cuda::narrow(vocab_);
    run("draw_siblings", cuda::specdec_cuda_draw_siblings, task);
  }

  void find_best(int64_t level, const at::Tensor& logits, const cuda::RowMasks& masks) const {
    if (probs_.defined()) {
      run("target_probs", cuda::specdec_cuda_target_probs,
          probs_task(logits, sampling_, masks, probs(level)));
    }
    cuda::BestSiblingsTask task = best_task(logits, sampling_, masks, probs(level));
    task.ranks = numbers(ranks_);
    task.valid = support(level);
    task.siblings = siblings(level);
    run("best_siblings", cuda::specdec_cuda_best_siblings, task);
  }

  at::Device device_;
  std::shared_ptr<void* const> stream_;
  int64_t vocab_, nodes_;
  bool draws_;                     // else the best tokens are found
  std::vector<Token> tokens_;      // [nodes] that were read
  EvaluatedNodes evaluated_;       // whose places are rows
  std::vector<int64_t> children_;  // [rows + 1] where those of a row begin
  std::vector<bool> closed_;       // [rows] NodeMask::closed
  int64_t most_ = 0;               // children of a node
  SamplingParams sampling_;
  at::Tensor names_;   // of the columns; undefined = each is its own
  at::Tensor memory_;  // int32: random numbers' key and position, then what follows
  int64_t parents_ = 0, first_children_ = 0, ranks_ = 0, places_ = 0;  // where tables begin
  int64_t sources_ = 0;  // [rows] as parents_in_level has them, a table likewise
  int64_t found_ = 0;    // [nodes] tokens; that of the root goes up with the tables
  int64_t valid_ = 0;    // [rows] whether the logits after them are valid
  int64_t fed_ = 0;      // [rows] their tokens, as the next forward reads them
  at::Tensor probs_;  // [rows, vocab], of best tokens a level's; undefined = nobody asks for them
  int64_t read_rows_ = 0;  // whose children were read
  ReadBacks read_backs_;
};

}  // namespace

TreeMemory::TreeMemory(int64_t vocab, at::Device device)
    : numbers(kNodeNumbers, at::TensorOptions(at::kInt).device(device)),
      probs(vocab, at::TensorOptions(at::kDouble).device(device)) {}

std::unique_ptr<DraftTreeDrawing> cuda_tree(const TreeRequest& tree, int64_t vocab,
                                            at::Device device, TreeMemory& memory,
                                            std::shared_ptr<void* const> stream) {
  return std::make_unique<CudaTree>(tree, vocab, device, memory, std::move(stream));
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
  cuda::run_kernel(device, "target_probs", cuda::specdec_cuda_target_probs,
                   probs_task(logits, own, allowed.masks, probs.mutable_data_ptr<double>()));

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
  const at::Tensor tables = at::empty({block.size()}, at::TensorOptions(at::kInt).device(device));
  block.upload(tables);
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
