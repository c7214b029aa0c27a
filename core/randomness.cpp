#include "core/randomness.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/kernels/device/verify.h"
#include "core/kernels/probs.h"

namespace specdec {
namespace {

constexpr int kRounds = 10;
constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53

std::pair<uint32_t, uint32_t> multiply(uint32_t a, uint32_t b) {
  const uint64_t product = static_cast<uint64_t>(a) * b;
  return {static_cast<uint32_t>(product >> 32U), static_cast<uint32_t>(product)};
}

/// Sum of the weights of a choice; checks what Randomness::draw asks of them.
double checked_sum(std::span<const double> weights) {
  const auto [sum, least] = sum_of(weights);
  SPECDEC_CHECK(least >= 0.0, "draw: a weight is negative: {}", least);
  SPECDEC_CHECK(sum > 0.0 && std::isfinite(sum), "draw: the weights sum to {}", sum);
  return sum;
}

double clamped(double probability) {
  SPECDEC_CHECK(!std::isnan(probability), "bernoulli: the probability is not a number");
  return std::clamp(probability, 0.0, 1.0);
}

const char* purpose_name(Purpose purpose) {
  return purpose == Purpose::kSample ? "sample" : purpose == Purpose::kDraft ? "draft" : "verify";
}

/// Next index from `from` on with a probability above zero; the size when there is none.
int64_t next_possible(const std::vector<double>& probabilities, int64_t from) {
  const auto found = std::find_if(probabilities.begin() + from, probabilities.end(),
                                  [](double probability) { return probability > 0.0; });
  return found - probabilities.begin();
}

/// Weights that are there anyway, as blocks.
class GivenBlocks final : public WeightBlocks {
 public:
  explicit GivenBlocks(std::span<const double> weights)
      : weights_(weights), sums_((weights.size() + kProbsBlock - 1) / kProbsBlock) {
    for (size_t block = 0; block < sums_.size(); ++block) {
      const auto [sum, least] = sum_of(part(block));
      SPECDEC_CHECK(least >= 0.0, "draw: a weight is negative: {}", least);
      sums_[block] = sum;
    }
  }
  int64_t size() const override { return std::ssize(weights_); }
  std::span<const double> sums() const override { return sums_; }
  void fill(int64_t block, std::span<double> weights) const override {
    const auto from = part(static_cast<size_t>(block));
    std::copy(from.begin(), from.end(), weights.begin());
  }

 private:
  std::span<const double> part(size_t block) const {
    const size_t begin = block * kProbsBlock;
    return weights_.subspan(begin, std::min(kProbsBlock, weights_.size() - begin));
  }

  std::span<const double> weights_;
  std::vector<double> sums_;
};

}  // namespace

size_t WeightBlocks::size_of(int64_t block) const {
  const auto all = static_cast<size_t>(size());
  return std::min(kProbsBlock, all - static_cast<size_t>(block) * kProbsBlock);
}

int64_t Randomness::draw(const WeightBlocks& weights) {
  std::vector<double> all(static_cast<size_t>(weights.size()));
  const std::span<const double> sums = weights.sums();
  for (size_t block = 0; block < sums.size(); ++block) {
    const auto index = static_cast<int64_t>(block);
    const auto part = std::span(all).subspan(block * kProbsBlock, weights.size_of(index));
    weights.fill(index, part);
    const double sum = sum_of(part).sum;
    SPECDEC_CHECK(std::abs(sum - sums[block]) <= 1e-9 * sum,
                  "draw: the weights of block {} sum to {}, not {}", block, sum, sums[block]);
  }
  return draw(all);
}

Token Randomness::draw(TokenSpan ids, std::span<const double> weights) {
  SPECDEC_CHECK(ids.size() == weights.size(), "draw: {} tokens with {} weights", ids.size(),
                weights.size());
  return ids[static_cast<size_t>(draw(weights))];
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const auto [high0, low0] = multiply(0xD2511F53U, counter[0]);
    const auto [high1, low1] = multiply(0xCD9E8D57U, counter[2]);
    counter = {high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

CounterRandomness::CounterRandomness(uint64_t seed, uint32_t prompt, uint32_t repeat) {
  // The key has 64 bits, its parts 128: one block of the same cipher mixes them.
  const auto block = philox4x32({prompt, repeat, 0, 0},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U)});
  key_ = {block[0], block[1]};
}

double CounterRandomness::uniform() {
  const auto block = philox4x32({choice_++, purpose_, static_cast<uint32_t>(position_),
                                 static_cast<uint32_t>(position_ >> 32U)},
                                key_);
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32U) | block[1];
  return static_cast<double>(bits >> 11U) * kUnit;
}

bool CounterRandomness::bernoulli(double probability) { return uniform() < clamped(probability); }

int64_t CounterRandomness::draw(std::span<const double> weights) {
  return draw(GivenBlocks(weights));
}

int64_t CounterRandomness::draw(const WeightBlocks& weights) {
  const std::span<const double> sums = weights.sums();
  const double target = uniform() * checked_sum(sums);
  // Skips whole blocks by their sums. If rounding has put the target on the total, the last weight
  // above zero is chosen.
  double passed = 0.0;  // by the blocks before `chosen`
  double ignored = 0.0;
  const int64_t chosen =
      device::pick(sums.data(), static_cast<int32_t>(sums.size()), target, passed);
  std::array<double, kProbsBlock> part;
  const std::span<double> filled(part.data(), weights.size_of(chosen));
  weights.fill(chosen, filled);
  return chosen * static_cast<int64_t>(kProbsBlock) +
         device::pick(filled.data(), static_cast<int32_t>(filled.size()), target - passed, ignored);
}

void CounterRandomness::seek(int64_t position, Purpose purpose) {
  position_ = static_cast<uint64_t>(position);
  purpose_ = static_cast<uint32_t>(purpose);
  choice_ = 0;
}

void DrawnKeys::seek(int64_t position, Purpose purpose) {
  place_ = {position, purpose};
  choice_ = 0;
}

void DrawnKeys::draw() {
  uint32_t& drawn = drawn_[place_];
  SPECDEC_CHECK(choice_ == drawn,
                "random number {} of position {} ({}) is drawn twice, so two choices are not "
                "independent; seek each (position, purpose) once",
                choice_, place_.first, purpose_name(place_.second));
  drawn = ++choice_;
}

void DrawnKeys::clear() { *this = {}; }

bool CheckedRandomness::bernoulli(double probability) {
  keys_.draw();
  return source_.bernoulli(probability);
}

int64_t CheckedRandomness::draw(std::span<const double> weights) {
  keys_.draw();
  return source_.draw(weights);
}

int64_t CheckedRandomness::draw(const WeightBlocks& weights) {
  keys_.draw();
  return source_.draw(weights);
}

void CheckedRandomness::seek(int64_t position, Purpose purpose) {
  keys_.seek(position, purpose);
  source_.seek(position, purpose);
}

bool EnumeratingRandomness::bernoulli(double probability) {
  const double yes = clamped(probability);
  return choose({1.0 - yes, yes}) == 1;
}

int64_t EnumeratingRandomness::draw(std::span<const double> weights) {
  const double sum = checked_sum(weights);
  std::vector<double> probabilities(weights.begin(), weights.end());
  for (double& probability : probabilities) {
    probability /= sum;
  }
  return choose(std::move(probabilities));
}

void EnumeratingRandomness::seek(int64_t position, Purpose purpose) {
  keys_.seek(position, purpose);
}

int64_t EnumeratingRandomness::choose(std::vector<double> probabilities) {
  keys_.draw();
  if (depth_ < choices_.size()) {
    const Choice& choice = choices_[depth_++];
    SPECDEC_CHECK(
        probabilities == choice.probabilities,
        "choice {} differs from the pass before: the procedure is not repeatable. Something "
        "else than its input and its Randomness decides: a clock, random numbers of its "
        "own, or what it keeps from one request to the next",
        depth_ - 1);
    return choice.taken;
  }
  const int64_t first = next_possible(probabilities, 0);
  choices_.push_back({std::move(probabilities), first});
  ++depth_;
  return first;
}

double EnumeratingRandomness::probability() const {
  double product = 1.0;
  for (size_t i = 0; i < depth_; ++i) {
    product *= choices_[i].probabilities[static_cast<size_t>(choices_[i].taken)];
  }
  return product;
}

bool EnumeratingRandomness::next_outcome() {
  SPECDEC_CHECK(
      depth_ == choices_.size(),
      "the pass made {} choices of the {} it was to repeat: the procedure is not repeatable. "
      "Something else than its input and its Randomness decides: a clock, random numbers "
      "of its own, or what it keeps from one request to the next",
      depth_, choices_.size());
  depth_ = 0;
  keys_.clear();
  while (!choices_.empty()) {
    Choice& choice = choices_.back();
    choice.taken = next_possible(choice.probabilities, choice.taken + 1);
    if (choice.taken < static_cast<int64_t>(choice.probabilities.size())) {
      return true;
    }
    choices_.pop_back();
  }
  return false;
}

}  // namespace specdec
