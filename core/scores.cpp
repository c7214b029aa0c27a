#include "core/scores.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "core/kernels/probs.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

constexpr auto kScoreBlock = static_cast<int64_t>(kProbsBlock);
constexpr size_t kWordTokens = 32;
constexpr uint32_t kAllAllowed = 0xFFFFFFFFU;

template <class Values>
auto part_of(const Values& values, int64_t block, size_t size) {
  return values.subspan(static_cast<size_t>(block) * kProbsBlock, size);
}

/// Estimates of what a core does with a block.
constexpr double kMaximumNanoseconds = 40.0;
constexpr double kMassesNanoseconds = 250.0;

/// Calls run(scores, results) for parts of the blocks, where it pays on several threads: a block's
/// result does not depend on the others.
template <class Values, class Run>
void for_blocks(const Values& scores, std::span<double> results, double nanoseconds,
                const Run& run) {
  const auto blocks = std::ssize(results);
  parallel_tiles(blocks, tile_grain(blocks, nanoseconds), [&](int64_t begin, int64_t end) {
    const size_t first = static_cast<size_t>(begin) * kProbsBlock;
    const size_t last = std::min(static_cast<size_t>(end) * kProbsBlock, scores.size());
    run(scores.subspan(first, last - first),
        results.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  });
}

/// The tokens of a history, each once, ascending. A long one is not sorted, since each distribution
/// asks for them anew: there is a bit for each token of the vocabulary.
std::vector<Token> seen_tokens(TokenSpan history, int64_t vocab) {
  constexpr int64_t kBits = 64;
  std::vector<Token> seen;
  if (std::ssize(history) < vocab / kBits) {
    seen.assign(history.begin(), history.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    return seen;
  }
  std::vector<uint64_t> words(static_cast<size_t>((vocab + kBits - 1) / kBits));
  for (const Token token : history) {
    words[static_cast<size_t>(token / kBits)] |= uint64_t{1} << (token % kBits);
  }
  for (int64_t word = 0; word < std::ssize(words); ++word) {
    for (uint64_t left = words[static_cast<size_t>(word)]; left != 0; left &= left - 1) {
      seen.push_back(static_cast<Token>(word * kBits + std::countr_zero(left)));
    }
  }
  return seen;
}

}  // namespace

std::string damaged_logits(std::optional<int64_t> tokens) {
  return fmt::format(
      "the model's logits{} hold NaN, +inf or nothing but -inf: its numbers are too large for its "
      "dtype (try float32 or float64), its weights are damaged, or everything was forbidden",
      tokens ? fmt::format(" after {} tokens", *tokens) : "");
}

std::string forbidden_logits() {
  return "sampling.logit_bias forbids (-inf) every token that may come next, here all that the "
         "grammar allows, if there is one: forbid fewer tokens, or change the grammar";
}

LogitRow LogitRow::of(const at::Tensor& logits, int64_t row) {
  SPECDEC_CHECK(logits.dim() == 2 && row >= 0 && row < logits.size(0),
                "row {} of logits with {} dimensions", row, logits.dim());
  SPECDEC_CHECK(logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kDouble,
                "logits are float32 or float64, not {}", c10::toString(logits.scalar_type()));
  if (!logits.is_cpu() || (logits.stride(1) != 1 && logits.size(1) > 1)) {
    return of(logits.narrow(0, row, 1).cpu().contiguous(), 0);
  }
  const auto size = static_cast<size_t>(logits.size(1));
  const int64_t offset = row * logits.stride(0);
  if (logits.scalar_type() == at::kDouble) {
    return {logits, std::span(logits.const_data_ptr<double>() + offset, size)};
  }
  return {logits, std::span(logits.const_data_ptr<float>() + offset, size)};
}

LogitRow LogitRow::of(const at::Tensor& logits) {
  SPECDEC_CHECK(logits.dim() == 1, "one row of logits has one dimension, not {}", logits.dim());
  return of(logits.unsqueeze(0), 0);
}

bool forbids_all(const LogitBias& bias, const AllowedTokens& allowed, int64_t size) {
  const auto is_allowed = [&](Token token) {
    const auto word = static_cast<size_t>(token) / kWordTokens;
    return allowed == nullptr ||
           (word < allowed->size() &&
            ((*allowed)[word] >> (static_cast<size_t>(token) % kWordTokens) & 1U) != 0);
  };
  int64_t left = size;
  if (allowed != nullptr) {
    left = 0;
    constexpr auto kTokens = static_cast<int64_t>(kWordTokens);
    for (int64_t first = 0; first < size; first += kTokens) {
      const auto index = static_cast<size_t>(first / kTokens);
      const uint32_t word = index < allowed->size() ? (*allowed)[index] : 0;
      const int64_t unused = std::max<int64_t>(0, first + kTokens - size);
      left += std::popcount(word << unused);
    }
  }
  for (const auto& [token, summand] : bias) {
    left -= std::isinf(summand) && token < size && is_allowed(token) ? 1 : 0;
  }
  return left == 0;
}

Scores::Scores(LogitRow logits, const LogitBias& bias, const RepetitionPenalty& penalty,
               AllowedTokens allowed)
    : logits_(std::move(logits)), allowed_(std::move(allowed)) {
  size_ = std::visit([](const auto& values) { return std::ssize(values); }, logits_.values);
  SPECDEC_CHECK(size_ > 0, "a distribution over no tokens");
  const auto is_known = [this](Token token) { return token >= 0 && token < size_; };
  SPECDEC_CHECK(bias.empty() || (is_known(bias.begin()->first) && is_known(bias.rbegin()->first)),
                "a token of the bias is outside the vocabulary of {}", size_);
  std::vector<Token> seen;
  if (penalty.factor != 1.0) {
    SPECDEC_CHECK(std::all_of(penalty.history.begin(), penalty.history.end(), is_known),
                  "a token of the history is outside the vocabulary of {}", size_);
    seen = seen_tokens(penalty.history, size_);
  }
  change(bias, seen, penalty.factor);
  find_maxima();
  best_ = largest_of(maxima_);
  if (!std::isfinite(best_)) {
    throw Error(forbids_all(bias, allowed_, size_) ? forbidden_logits() : damaged_logits());
  }
}

double Scores::of(Token token) const {
  SPECDEC_CHECK(token >= 0 && token < size_, "token {} is outside the vocabulary of {}", token,
                size_);
  std::array<double, kProbsBlock> part;
  const int64_t block = token / kScoreBlock;
  fill(block, std::span(part).first(size_of(block)));
  return part[static_cast<size_t>(token % kScoreBlock)];
}

double Scores::logit(Token token) const {
  return std::visit(
      [token](const auto& values) {
        return static_cast<double>(values[static_cast<size_t>(token)]);
      },
      logits_.values);
}

void Scores::change(const LogitBias& bias, TokenSpan seen, double penalty) {
  auto biased = bias.begin();
  auto next = seen.begin();
  while (biased != bias.end() || next != seen.end()) {
    const bool is_biased = next == seen.end() || (biased != bias.end() && biased->first <= *next);
    const bool is_seen = biased == bias.end() || (next != seen.end() && *next <= biased->first);
    const Token token = is_biased ? biased->first : *next;
    double score = logit(token) + (is_biased ? biased->second : 0.0);
    if (is_seen) {
      score = score > 0.0 ? score / penalty : score * penalty;
    }
    changes_.push_back({token, score});
    std::advance(biased, is_biased ? 1 : 0);
    std::advance(next, is_seen ? 1 : 0);
  }
}

std::span<const Scores::Change> Scores::changes_in(int64_t block) const {
  const auto by_token = [](const Change& change, int64_t token) { return change.token < token; };
  const auto begin =
      std::lower_bound(changes_.begin(), changes_.end(), block * kScoreBlock, by_token);
  const auto end = std::lower_bound(begin, changes_.end(), (block + 1) * kScoreBlock, by_token);
  return {begin, end};
}

uint32_t Scores::allowed_word(size_t word) const {
  return word < allowed_->size() ? (*allowed_)[word] : 0;
}

Scores::Content Scores::content_of(int64_t block) const {
  uint32_t any = 0;
  uint32_t all = kAllAllowed;
  const size_t first = static_cast<size_t>(block) * kProbsBlock / kWordTokens;
  for (size_t i = 0; allowed_ != nullptr && i * kWordTokens < size_of(block); ++i) {
    any |= allowed_word(first + i);
    all &= allowed_word(first + i);
  }
  if (allowed_ != nullptr && any == 0) {
    return Content::kNothing;
  }
  return all == kAllAllowed && changes_in(block).empty() ? Content::kLogits : Content::kMixed;
}

size_t Scores::size_of(int64_t block) const {
  return std::min(kProbsBlock, static_cast<size_t>(size_ - block * kScoreBlock));
}

void Scores::fill(int64_t block, std::span<double> scores) const {
  std::visit(
      [&](const auto& values) {
        const auto part = part_of(values, block, scores.size());
        std::copy(part.begin(), part.end(), scores.begin());
      },
      logits_.values);
  for (const Change& change : changes_in(block)) {
    scores[static_cast<size_t>(change.token - block * kScoreBlock)] = change.score;
  }
  if (allowed_ == nullptr) {
    return;
  }
  const size_t first = static_cast<size_t>(block) * kProbsBlock / kWordTokens;
  for (size_t begin = 0; begin < scores.size(); begin += kWordTokens) {
    const uint32_t word = allowed_word(first + begin / kWordTokens);
    for (size_t i = begin; word != kAllAllowed && i < std::min(begin + kWordTokens, scores.size());
         ++i) {
      const bool is_allowed = (word >> (i - begin) & 1U) != 0;
      scores[i] = is_allowed ? scores[i] : -std::numeric_limits<double>::infinity();
    }
  }
}

void Scores::find_maxima() {
  maxima_.resize(static_cast<size_t>((size_ + kScoreBlock - 1) / kScoreBlock));
  if (changes_.empty() && allowed_ == nullptr) {
    std::visit(
        [&](const auto& values) {
          for_blocks(values, maxima_, kMaximumNanoseconds,
                     [](auto part, std::span<double> maxima) { block_maxima(part, maxima); });
        },
        logits_.values);
    return;
  }
  std::array<double, kProbsBlock> part;
  for (int64_t block = 0; block < std::ssize(maxima_); ++block) {
    double& maximum = maxima_[static_cast<size_t>(block)];
    switch (content_of(block)) {
      case Content::kNothing:
        maximum = -std::numeric_limits<double>::infinity();
        break;
      case Content::kLogits:
        std::visit(
            [&](const auto& values) {
              block_maxima(part_of(values, block, size_of(block)), {&maximum, 1});
            },
            logits_.values);
        break;
      case Content::kMixed: {
        const std::span<double> scores = std::span(part).first(size_of(block));
        fill(block, scores);
        maximum = largest_of(scores);
      }
    }
  }
}

double Scores::fill_masses(int64_t block, double scale, std::span<double> masses) const {
  if (content_of(block) == Content::kLogits) {
    return std::visit(
        [&](const auto& values) {
          return soften(part_of(values, block, masses.size()), best_, scale, masses);
        },
        logits_.values);
  }
  fill(block, masses);
  return soften(masses, best_, scale, masses);
}

std::vector<double> Scores::mass_sums(double scale) const {
  std::vector<double> sums(maxima_.size());
  if (changes_.empty() && allowed_ == nullptr) {
    std::visit(
        [&](const auto& values) {
          for_blocks(values, sums, kMassesNanoseconds, [&](auto part, std::span<double> of_part) {
            block_masses(part, best_, scale, of_part);
          });
        },
        logits_.values);
    return sums;
  }
  std::array<double, kProbsBlock> part;
  for (size_t block = 0; block < sums.size(); ++block) {
    const auto index = static_cast<int64_t>(block);
    const bool any = maxima_[block] > -std::numeric_limits<double>::infinity();
    sums[block] = any ? fill_masses(index, scale, std::span(part).first(size_of(index))) : 0.0;
  }
  return sums;
}

}  // namespace specdec
