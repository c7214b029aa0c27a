#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/types.h"

namespace specdec {

/// What a choice is made for; part of the key, so that adding a choice of one purpose moves none of
/// another.
enum class Purpose : uint32_t { kSample, kDraft, kVerify };

/// Weights of a choice in blocks of kProbsBlock, the last one maybe smaller, whose sums are known:
/// a draw makes the weights of one block only.
class WeightBlocks {
 public:
  virtual ~WeightBlocks() = default;
  virtual int64_t size() const = 0;
  /// Sum of the weights of each block.
  virtual std::span<const double> sums() const = 0;
  /// Writes the weights of a block.
  virtual void fill(int64_t block, std::span<double> weights) const = 0;
  /// Weights in a block.
  size_t size_of(int64_t block) const;
};

/// The only source of randomness: every random choice of a strategy goes through this interface, so
/// a test can enumerate all outcomes and a run can be repeated from its seed.
class Randomness {
 public:
  virtual ~Randomness() = default;
  /// True with `probability` (clamped to [0, 1]).
  virtual bool bernoulli(double probability) = 0;
  /// Index i with probability weights[i] / sum(weights). Weights are finite, not negative, and need
  /// not sum to one, but their sum is positive.
  virtual int64_t draw(std::span<const double> weights) = 0;
  /// Draws by weights in blocks. A source without its own way makes all the weights, and checks
  /// their sums: InternalError.
  virtual int64_t draw(const WeightBlocks& weights);
  /// Draws one of some tokens by their weights.
  virtual Token draw(TokenSpan ids, std::span<const double> weights);
  /// The next choices decide the token at `position` of the sequence (prompt included). A source
  /// keyed by position restarts its counter for (position, purpose); others ignore it. So no two
  /// steps may seek to the same pair: all choices of a draft count from the draft's first position.
  virtual void seek(int64_t position, Purpose purpose) = 0;
  /// Key of Philox4x32-10 by which a device draws the same numbers as CounterRandomness does; none:
  /// only this source knows its choices.
  virtual std::optional<std::array<uint32_t, 2>> device_key() const { return std::nullopt; }
};

/// One block of Philox4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3"):
/// a keyed bijection of 128-bit counters.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Philox4x32-10 keyed by (seed, prompt, repeat) and counted by (position, purpose, choice): one
/// uniform a choice, inverse CDF. It has no state to save: a resumed run continues with the same
/// choices.
class CounterRandomness final : public Randomness {
 public:
  explicit CounterRandomness(uint64_t seed, uint32_t prompt = 0, uint32_t repeat = 0);
  using Randomness::draw;
  bool bernoulli(double probability) override;
  int64_t draw(std::span<const double> weights) override;
  int64_t draw(const WeightBlocks& weights) override;
  void seek(int64_t position, Purpose purpose) override;
  std::optional<std::array<uint32_t, 2>> device_key() const override { return key_; }

 private:
  double uniform();  // in [0, 1), 53 bits

  std::array<uint32_t, 2> key_;  // Philox of the seed, prompt and repeat
  uint64_t position_ = 0;
  uint32_t purpose_ = 0;
  uint32_t choice_ = 0;
};

/// The random numbers of CounterRandomness at a position, as a device draws them.
struct DeviceRandomness {
  std::array<uint32_t, 2> key = {};  ///< Randomness::device_key
  int64_t position = 0;              ///< what the source was sought to
};

/// The keys (position, purpose, choice) that a source keyed by position was asked for. A key that
/// comes a second time gives the same random number again, and choices that share one are not
/// independent: an accepted draft whose correction was drawn with the draft's own number, say.
class DrawnKeys {
 public:
  void seek(int64_t position, Purpose purpose);
  /// Notes the next choice; InternalError when its key has been drawn before.
  void draw();
  void clear();

 private:
  using Place = std::pair<int64_t, Purpose>;
  Place place_ = {-1, Purpose::kSample};  // before the first seek
  uint32_t choice_ = 0;                   // the next one at this place
  std::map<Place, uint32_t> drawn_;       // choices made at each place
};

/// A source whose user must not draw a key twice: InternalError when it does.
class CheckedRandomness final : public Randomness {
 public:
  /// Borrows the source.
  explicit CheckedRandomness(Randomness& source) : source_(source) {}
  using Randomness::draw;
  bool bernoulli(double probability) override;
  int64_t draw(std::span<const double> weights) override;
  int64_t draw(const WeightBlocks& weights) override;
  void seek(int64_t position, Purpose purpose) override;

 private:
  Randomness& source_;
  DrawnKeys keys_;
};

/// Walks every outcome of a random procedure, depth first: run the procedure once per pass until
/// `next_outcome()` is false. Choices of probability zero are skipped. The probability of the pass
/// just run is `probability()`; over all passes they sum to one.
///
///     EnumeratingRandomness random;
///     do {
///       distribution[generate(random)] += random.probability();
///     } while (random.next_outcome());
///
/// The procedure must make the same choices when it is given the same outcomes, and draw no key
/// twice, since outcomes count as independent here: InternalError if not.
class EnumeratingRandomness final : public Randomness {
 public:
  using Randomness::draw;
  bool bernoulli(double probability) override;
  int64_t draw(std::span<const double> weights) override;
  void seek(int64_t position, Purpose purpose) override;

  /// Probability of the choices made since the last call of next_outcome().
  double probability() const;
  /// Moves to the next outcome; false when all have been seen.
  bool next_outcome();

 private:
  struct Choice {
    std::vector<double> probabilities;
    int64_t taken = 0;
  };
  int64_t choose(std::vector<double> probabilities);

  std::vector<Choice> choices_;
  size_t depth_ = 0;
  DrawnKeys keys_;  // of this pass
};

}  // namespace specdec
