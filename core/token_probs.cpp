#include "core/token_probs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/kernels/probs.h"

namespace specdec {
namespace {

constexpr auto kBlock = static_cast<int64_t>(kProbsBlock);

int64_t blocks_in(int64_t size) { return (size + kBlock - 1) / kBlock; }

/// A row of its own.
class RowBlocks final : public WeightBlocks {
 public:
  explicit RowBlocks(std::vector<double> row)
      : row_(std::move(row)), sums_(static_cast<size_t>(blocks_in(std::ssize(row_)))) {
    for (size_t block = 0; block < sums_.size(); ++block) {
      sums_[block] = sum_of(part(static_cast<int64_t>(block))).sum;
    }
  }
  int64_t size() const override { return std::ssize(row_); }
  std::span<const double> sums() const override { return sums_; }
  void fill(int64_t block, std::span<double> weights) const override {
    const auto from = part(block);
    std::copy(from.begin(), from.end(), weights.begin());
  }

 private:
  std::span<const double> part(int64_t block) const {
    return std::span(row_).subspan(static_cast<size_t>(block) * kProbsBlock, size_of(block));
  }

  std::vector<double> row_;
  std::vector<double> sums_;
};

/// "More likely", ties to the lower id.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
}

/// The most likely of the tokens that it is shown.
class Best {
 public:
  explicit Best(int64_t count) : count_(static_cast<size_t>(std::max<int64_t>(count, 0))) {}
  /// False when no token of this weight can be among them.
  bool takes(double weight) const {
    return weight > 0.0 && count_ > 0 &&
           (found_.size() < count_ || weight >= found_.back().probability);
  }
  void see(const Candidate& candidate) {
    if (takes(candidate.probability)) {
      found_.insert(std::upper_bound(found_.begin(), found_.end(), candidate, more_likely),
                    candidate);
      found_.resize(std::min(found_.size(), count_));
    }
  }
  /// The candidates found, each weight times `unit`.
  std::vector<Candidate> found(double unit) && {
    for (Candidate& candidate : found_) {
      candidate.probability *= unit;
    }
    return std::move(found_);
  }

 private:
  size_t count_;
  std::vector<Candidate> found_;  // with their weights
};

}  // namespace

/// max(scale * p - q, 0) where p is not sparse. The blocks of it are made when they are asked for.
class TokenProbs::Difference final : public WeightBlocks {
 public:
  Difference(TokenProbs p, TokenProbs q, double scale)
      : p_(std::move(p)), q_(std::move(q)), scale_(scale) {
    const std::span<const double> sums = p_.blocks_->sums();
    sums_.resize(sums.size());
    std::array<double, kProbsBlock> part;
    for (size_t block = 0; block < sums.size(); ++block) {
      const auto index = static_cast<int64_t>(block);
      if (is_untouched(index)) {
        sums_[block] = scale_ * (sums[block] * p_.unit_);
      } else {
        const std::span<double> filled(part.data(), size_of(index));
        fill(index, filled);
        sums_[block] = sum_of(filled).sum;
      }
    }
  }
  int64_t size() const override { return p_.vocab_size(); }
  std::span<const double> sums() const override { return sums_; }
  void fill(int64_t block, std::span<double> weights) const override {
    std::array<double, kProbsBlock> taken;
    const std::span<double> filled = std::span(taken).first(weights.size());
    if (!q_.is_sparse()) {
      q_.blocks_->fill(block, filled);
    } else {
      q_.fill(block, filled);
    }
    const double unit = q_.is_sparse() ? 1.0 : q_.unit_;
    p_.blocks_->fill(block, weights);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = std::max(scale_ * (weights[i] * p_.unit_) - taken[i] * unit, 0.0);
    }
  }

 private:
  bool is_untouched(int64_t block) const {
    const auto [begin, end] = q_.ids_of(block);
    return q_.is_sparse() && begin == end;
  }

  TokenProbs p_;
  TokenProbs q_;
  double scale_;
  std::vector<double> sums_;
};

TokenProbs::TokenProbs(std::vector<double> row)
    : TokenProbs(std::make_shared<RowBlocks>(std::move(row))) {}

TokenProbs::TokenProbs(std::vector<Token> ids, std::vector<double> weights, int64_t vocab_size)
    : vocab_size_(vocab_size), ids_(std::move(ids)), weights_(std::move(weights)) {
  SPECDEC_CHECK(ids_.size() == weights_.size(), "{} tokens with {} probabilities", ids_.size(),
                weights_.size());
  SPECDEC_CHECK(std::adjacent_find(ids_.begin(), ids_.end(), std::greater_equal<>()) == ids_.end(),
                "the tokens of a distribution ascend");
  SPECDEC_CHECK(ids_.empty() || (ids_.front() >= 0 && ids_.back() < vocab_size),
                "token {} is outside the vocabulary of {}",
                ids_.empty() || ids_.front() < 0 ? ids_.front() : ids_.back(), vocab_size);
}

TokenProbs::TokenProbs(std::shared_ptr<const WeightBlocks> blocks, double unit)
    : vocab_size_(blocks->size()), blocks_(std::move(blocks)), unit_(unit) {}

TokenProbs TokenProbs::one_hot(Token token, int64_t vocab_size) {
  return TokenProbs({token}, {1.0}, vocab_size);
}

std::pair<size_t, size_t> TokenProbs::ids_of(int64_t block) const {
  const auto begin = std::lower_bound(ids_.begin(), ids_.end(), block * kBlock);
  const auto end = std::lower_bound(begin, ids_.end(), (block + 1) * kBlock);
  return {static_cast<size_t>(begin - ids_.begin()), static_cast<size_t>(end - ids_.begin())};
}

void TokenProbs::fill(int64_t block, std::span<double> probs) const {
  if (!is_sparse()) {
    blocks_->fill(block, probs);
    std::transform(probs.begin(), probs.end(), probs.begin(),
                   [this](double weight) { return weight * unit_; });
    return;
  }
  std::fill(probs.begin(), probs.end(), 0.0);
  const auto [begin, end] = ids_of(block);
  for (size_t i = begin; i < end; ++i) {
    probs[static_cast<size_t>(ids_[i] - block * kBlock)] = weights_[i] * unit_;
  }
}

double TokenProbs::operator[](Token token) const {
  SPECDEC_CHECK(token >= 0 && token < vocab_size_, "token {} is outside the vocabulary of {}",
                token, vocab_size_);
  if (is_sparse()) {
    const auto place = std::lower_bound(ids_.begin(), ids_.end(), token);
    const bool has_token = place != ids_.end() && *place == token;
    return has_token ? weights_[static_cast<size_t>(place - ids_.begin())] * unit_ : 0.0;
  }
  std::array<double, kProbsBlock> part;
  const int64_t block = token / kBlock;
  blocks_->fill(block, std::span(part).first(blocks_->size_of(block)));
  return part[static_cast<size_t>(token % kBlock)] * unit_;
}

double TokenProbs::sum() const {
  return unit_ * sum_of(is_sparse() ? std::span<const double>(weights_) : blocks_->sums()).sum;
}

Token TokenProbs::best() const {
  const std::vector<Candidate> found = top(1);
  SPECDEC_CHECK(!found.empty(), "the best token of a distribution without mass");
  return found.front().token;
}

std::vector<Candidate> TokenProbs::top(int64_t count) const {
  Best best(count);
  for (size_t i = 0; i < ids_.size(); ++i) {
    best.see({ids_[i], weights_[i]});
  }
  if (is_sparse()) {
    return std::move(best).found(unit_);
  }
  // No weight is above its block's sum, so the heaviest blocks come first, and few are made.
  const std::span<const double> sums = blocks_->sums();
  const auto lighter = [&](size_t a, size_t b) { return sums[a] < sums[b]; };
  std::vector<size_t> heap(sums.size());
  std::iota(heap.begin(), heap.end(), size_t{0});
  std::make_heap(heap.begin(), heap.end(), lighter);
  std::array<double, kProbsBlock> part;
  while (!heap.empty() && best.takes(sums[heap.front()])) {
    const auto block = static_cast<int64_t>(heap.front());
    std::pop_heap(heap.begin(), heap.end(), lighter);
    heap.pop_back();
    const std::span<double> weights = std::span(part).first(blocks_->size_of(block));
    blocks_->fill(block, weights);
    for (size_t i = 0; i < weights.size(); ++i) {
      best.see({static_cast<Token>(block * kBlock) + static_cast<Token>(i), weights[i]});
    }
  }
  return std::move(best).found(unit_);
}

Token TokenProbs::draw(Randomness& random) const {
  return is_sparse() ? random.draw(ids_, weights_) : static_cast<Token>(random.draw(*blocks_));
}

std::vector<double> TokenProbs::row() const {
  std::vector<double> all(static_cast<size_t>(vocab_size_));
  for (int64_t block = 0; block < blocks_in(vocab_size_); ++block) {
    const auto begin = static_cast<size_t>(block) * kProbsBlock;
    fill(block, std::span(all).subspan(begin, std::min(kProbsBlock, all.size() - begin)));
  }
  return all;
}

void TokenProbs::visit(const std::function<void(std::span<const double>)>& see) const {
  if (is_sparse()) {
    std::vector<double> probs(weights_.size());
    std::transform(weights_.begin(), weights_.end(), probs.begin(),
                   [this](double weight) { return weight * unit_; });
    see(probs);
    return;
  }
  std::array<double, kProbsBlock> part;
  for (int64_t block = 0; block < blocks_in(vocab_size_); ++block) {
    const std::span<double> probs = std::span(part).first(blocks_->size_of(block));
    fill(block, probs);
    see(probs);
  }
}

TokenProbs TokenProbs::normalised() const {
  const double total = sum();
  SPECDEC_CHECK(total > 0.0, "a distribution that sums to {} cannot be normalised", total);
  TokenProbs result = *this;
  result.unit_ = unit_ / total;
  if (std::isfinite(1.0 / total)) {
    return result;
  }
  std::vector<double> all = row();  // of a sum so small that it has no inverse
  divide(all, total);
  return TokenProbs(std::move(all));
}

TokenProbs TokenProbs::stored() const { return is_sparse() ? *this : TokenProbs(row()); }

TokenProbs TokenProbs::without(Token token) const {
  return residual(*this, TokenProbs({token}, {(*this)[token]}, vocab_size_));
}

TokenProbs TokenProbs::renamed(TokenSpan names, int64_t vocab_size) const {
  SPECDEC_CHECK(std::ssize(names) == vocab_size_, "{} names of {} tokens", names.size(),
                vocab_size_);
  if (!is_sparse()) {
    return TokenProbs({names.begin(), names.end()}, row(), vocab_size);
  }
  std::vector<Token> ids(ids_.size());
  std::transform(ids_.begin(), ids_.end(), ids.begin(),
                 [&](Token id) { return names[static_cast<size_t>(id)]; });
  TokenProbs result(std::move(ids), weights_, vocab_size);
  result.unit_ = unit_;
  return result;
}

TokenProbs residual(const TokenProbs& p, const TokenProbs& q, double scale) {
  SPECDEC_CHECK(p.vocab_size() == q.vocab_size(), "the residual of vocabularies of {} and {}",
                p.vocab_size(), q.vocab_size());
  if (!p.is_sparse()) {
    return TokenProbs(std::make_shared<TokenProbs::Difference>(p, q, scale));
  }
  TokenProbs rest = p;
  rest.unit_ = 1.0;
  std::array<double, kProbsBlock> part;
  for (size_t i = 0; i < p.ids_.size();) {
    const int64_t block = p.ids_[i] / kBlock;
    const int64_t begin = block * kBlock;
    q.fill(block, std::span(part).first(
                      std::min(kProbsBlock, static_cast<size_t>(q.vocab_size() - begin))));
    for (; i < p.ids_.size() && p.ids_[i] < begin + kBlock; ++i) {
      const double taken = part[static_cast<size_t>(p.ids_[i] - begin)];
      rest.weights_[i] = std::max(scale * (p.weights_[i] * p.unit_) - taken, 0.0);
    }
  }
  return rest;
}

}  // namespace specdec
