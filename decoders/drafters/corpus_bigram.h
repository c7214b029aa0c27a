#pragma once
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "decoders/drafter.h"
#include "decoders/drafters/best_first.h"

namespace specdec {

/// Table of how often each token follows each other one in a corpus.
class BigramTable {
 public:
  /// Counts the pairs within each document.
  explicit BigramTable(std::span<const std::vector<Token>> documents);
  /// The most frequent followers of a token, with their shares; of equals the lower id first.
  std::vector<Follower> followers(Token token, int64_t count) const;

 private:
  std::unordered_map<Token, std::vector<Follower>> table_;  // most frequent first
};

struct CorpusBigramOptions {
  double min_probability = 0.0;  ///< least probability of a drafted path, by counts
};

/// Proposes the most frequent successors by the bigram counts of a corpus, as a chain or as the
/// tree of the most probable paths: what any drafter that was trained has to beat.
class CorpusBigramDrafter final : public Drafter {
 public:
  /// The table can be shared. Throws ConfigError for a probability outside [0, 1].
  explicit CorpusBigramDrafter(std::shared_ptr<const BigramTable> table,
                               const CorpusBigramOptions& options = {});
  Draft propose(const DraftContext& context) override;

 private:
  std::shared_ptr<const BigramTable> table_;
  CorpusBigramOptions options_;
};

}  // namespace specdec
