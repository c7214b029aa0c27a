#include "core/kernels/cuda/sampler_tables.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "core/device_probs.h"
#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/staged_upload.h"

namespace specdec::cuda {
namespace {

/// Arrays one behind the other, each at a multiple of 8 bytes.
class TableBlock {
 public:
  /// Returns where the array begins, in words of 8 bytes.
  template <class Number>
  size_t add(const std::vector<Number>& numbers) {
    const size_t begin = words_.size();
    const size_t bytes = numbers.size() * sizeof(Number);
    words_.resize(begin + (bytes + 7) / 8);
    if (bytes > 0) {
      std::memcpy(words_.data() + begin, numbers.data(), bytes);
    }
    return begin;
  }
  at::Tensor upload(at::Device device) const {
    at::Tensor there = at::empty({std::ssize(words_)}, at::TensorOptions(at::kLong).device(device));
    specdec::upload(words_.data(), there);
    return there;
  }

 private:
  std::vector<int64_t> words_;
};

/// An array of a block that was uploaded.
template <class Number>
Number* array_at(const at::Tensor& block, size_t begin) {
  return reinterpret_cast<Number*>(block.mutable_data_ptr<int64_t>() + begin);
}

/// Masks of nodes, whose shared bases stand once.
class MaskArrays {
 public:
  explicit MaskArrays(std::span<const NodeMask> masks) {
    for (const NodeMask& mask : masks) {
      add(mask);
    }
  }
  void add_to(TableBlock& block) {
    of_row_begin_ = block.add(of_row_);
    starts_begin_ = block.add(starts_);
    exceptions_begin_ = block.add(exceptions_);
    bases_begin_ = block.add(bases_);
  }
  /// The masks in the block, once it is uploaded.
  RowMasks in(const at::Tensor& block) const {
    if (of_row_.empty()) {
      return {};
    }
    return {array_at<int32_t>(block, of_row_begin_), array_at<uint32_t>(block, bases_begin_),
            array_at<int32_t>(block, starts_begin_), array_at<int32_t>(block, exceptions_begin_),
            narrow(static_cast<int64_t>(words_))};
  }

 private:
  /// Where a mask has no token, the text is over and no token after it is taken: all are allowed,
  /// as the host has it.
  void add(const NodeMask& mask) {
    if (mask.closed) {
      of_row_.push_back(-1);
      starts_.push_back(starts_.back());
      return;
    }
    const bool over = mask.base == nullptr && mask.added.empty();
    of_row_.push_back(over ? kCudaAllTokens : mask.base == nullptr ? -1 : index_of(mask.base));
    exceptions_.insert(exceptions_.end(), mask.added.begin(), mask.added.end());
    for (const Token token : mask.removed) {
      exceptions_.push_back(~token);
    }
    starts_.push_back(narrow(std::ssize(exceptions_)));
  }

  int32_t index_of(const AllowedTokens& base) {
    const auto [place, is_new] = indices_.try_emplace(base.get(), narrow(std::ssize(indices_)));
    if (is_new) {
      SPECDEC_CHECK(words_ == 0 || words_ == base->size(), "masks of {} and {} words", words_,
                    base->size());
      words_ = base->size();
      bases_.insert(bases_.end(), base->begin(), base->end());
    }
    return place->second;
  }

  std::vector<int32_t> of_row_, starts_ = {0}, exceptions_;
  std::vector<uint32_t> bases_;
  size_t words_ = 0;
  size_t of_row_begin_ = 0, starts_begin_ = 0, exceptions_begin_ = 0, bases_begin_ = 0;
  std::map<const void*, int32_t> indices_;
};

std::vector<int32_t> narrowed(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

/// The token of each node's first child, 0 where it has none.
std::vector<int32_t> first_children(const Draft& draft) {
  std::vector<int32_t> tokens(draft.tokens.size(), 0);
  for (size_t child = draft.tokens.size(); child-- > 1;) {
    tokens[static_cast<size_t>(draft.parents[child])] = draft.tokens[child];
  }
  return tokens;
}

std::vector<int64_t> positions_after(const SampledDraft& sampled) {
  std::vector<int64_t> positions = sampled.draft.depths();
  for (int64_t& position : positions) {
    position += sampled.position;
  }
  return positions;
}

void check_mass(const TokenProbs& probs, Token token) {
  SPECDEC_CHECK(
      is_on_device(probs) || probs[token] > 0.0,  // a device draws no other
      "token {} was drafted, but the distribution that it was drawn from gives it no mass", token);
}

}  // namespace

LogitRows logit_rows(const at::Tensor& logits) {
  if (logits.size(0) > 1 && logits.stride(0) == 0) {
    return {floats(logits.narrow(0, 0, 1)), 0};
  }
  return {floats(logits), logits.size(1)};
}

TargetProbsTask target_probs_task(const at::Tensor& logits, const SamplingParams& sampling,
                                  double* probs) {
  const LogitRows rows = logit_rows(logits);
  TargetProbsTask task{};
  task.logits = rows.first;
  task.probs = probs;
  task.stride = rows.stride;
  task.count = narrow(logits.size(0));
  task.vocab = narrow(logits.size(1));
  task.temperature = sampling.temperature;
  task.top_k = narrow(std::min(sampling.top_k, logits.size(1)));
  task.top_p = sampling.top_p;
  task.min_p = sampling.min_p;
  return task;
}

SamplerTables upload_tables(const SampledDraft& sampled, at::Device device) {
  const Draft& draft = sampled.draft;
  std::vector<int32_t> chain(draft.tokens.size());
  std::iota(chain.begin(), chain.end(), 0);
  MaskArrays masks(sampled.masks);
  TableBlock block;
  const size_t tokens = block.add(draft.tokens);
  const size_t parents = block.add(narrowed(draft.parents));
  const size_t drawn_from = block.add(narrowed(draft.child_probs));
  const size_t path = block.add(chain);
  const size_t sizes = block.add(std::vector{narrow(draft.size()), narrow(draft.proposed())});
  const size_t choices = block.add(first_children(draft));
  const size_t key = block.add(std::vector(sampled.key.begin(), sampled.key.end()));
  const size_t positions = block.add(positions_after(sampled));
  masks.add_to(block);
  const at::Tensor memory = block.upload(device);
  return {.memory = memory,
          .tokens = array_at<int32_t>(memory, tokens),
          .parents = array_at<int32_t>(memory, parents),
          .drawn_from = array_at<int32_t>(memory, drawn_from),
          .chain = array_at<int32_t>(memory, path),
          .nodes = array_at<int32_t>(memory, sizes),
          .length = array_at<int32_t>(memory, sizes) + 1,
          .choices = array_at<int32_t>(memory, choices),
          .key = array_at<uint32_t>(memory, key),
          .positions = array_at<int64_t>(memory, positions),
          .masks = masks.in(memory)};
}

UploadedMasks upload_masks(std::span<const NodeMask> masks, at::Device device) {
  MaskArrays arrays(masks);
  TableBlock block;
  arrays.add_to(block);
  const at::Tensor memory = block.upload(device);
  return {memory, arrays.in(memory)};
}

std::vector<TokenProbs> drafted_rows(const Draft& draft) {
  for (size_t child = 1; child < draft.tokens.size(); ++child) {
    if (const TokenProbs* probs = draft.drawn_from(draft.parents[child])) {
      check_mass(*probs, draft.tokens[child]);
    }
  }
  return draft.probs;
}

std::vector<TokenProbs> chain_rows(const Draft& chain, int64_t vocab) {
  std::vector<TokenProbs> rows;
  bool is_drawn = false;
  for (int64_t child = 1; child < chain.size(); ++child) {
    const Token token = chain.tokens[static_cast<size_t>(child)];
    const TokenProbs* probs = chain.drawn_from(child - 1);
    is_drawn = is_drawn || probs != nullptr;
    rows.push_back(probs != nullptr ? *probs : TokenProbs::one_hot(token, vocab));
    check_mass(rows.back(), token);
  }
  return is_drawn ? rows : std::vector<TokenProbs>();
}

at::Tensor upload_rows(const std::vector<TokenProbs>& rows, int64_t vocab, at::Device device) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  if (const at::Tensor there = rows_on_device(rows); there.defined() && there.size(1) == vocab) {
    return there.to(device);
  }
  at::Tensor all = at::zeros({std::ssize(rows), vocab}, options);
  std::vector<int64_t> places;  // of masses of distributions over few tokens
  std::vector<double> masses;
  for (int64_t index = 0; index < std::ssize(rows); ++index) {
    const TokenProbs& row = rows[static_cast<size_t>(index)];
    SPECDEC_CHECK(row.vocab_size() == vocab,
                  "the draft's distributions are over {} tokens, the target's over {}",
                  row.vocab_size(), vocab);
    if (row.ids().empty()) {
      std::vector<double> dense = row.row();
      all[index].copy_(at::from_blob(dense.data(), {vocab}, at::kDouble));
      continue;
    }
    for (const Token id : row.ids()) {
      places.push_back(index * vocab + id);
    }
    row.visit([&](std::span<const double> probs) {
      masses.insert(masses.end(), probs.begin(), probs.end());
    });
  }
  if (!places.empty()) {
    const at::Tensor where = at::from_blob(places.data(), {std::ssize(places)}, at::kLong);
    const at::Tensor what = at::from_blob(masses.data(), {std::ssize(masses)}, at::kDouble);
    all.view({-1}).scatter_(0, uploaded(where, device), uploaded(what, device));
  }
  return all;
}

}  // namespace specdec::cuda
