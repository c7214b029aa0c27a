#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "decoders/drafter.h"

namespace specdec {

struct PromptLookupOptions {
  int64_t min_ngram = 2;  ///< shortest match that is worth a draft
  int64_t max_ngram = 8;  ///< longer matches are not told apart; memory grows with it
};

/// Proposes what followed the longest earlier occurrence of the newest n tokens in prompt and
/// output (prompt lookup decoding, Saxena, 2023). Of several occurrences of the longest match it
/// takes the newest that is followed by as many tokens as wanted, or by the most there are. Costs
/// no model and no randomness.
class PromptLookupDrafter final : public Drafter {
 public:
  /// Throws ConfigError unless 1 <= min_ngram <= max_ngram.
  explicit PromptLookupDrafter(const PromptLookupOptions& options = {});
  void reset() override;
  Draft propose(const DraftContext& context) override;

 private:
  /// Brings the index in line: every n-gram that ends before the newest token.
  void update(TokenSpan committed);
  void index_ngrams_ending_at(int64_t end);
  uint64_t hash(int64_t end, int64_t size) const;
  bool same_ngram(int64_t end, int64_t other_end, int64_t size) const;
  /// End of the best earlier occurrence of the newest `size` tokens; -1 when there is none.
  int64_t find(int64_t size, int64_t wanted);

  /// Ends of the n-grams of one size. Those of one hash form a list, the newest first.
  struct Ends {
    std::unordered_map<uint64_t, int64_t> newest;  // of each hash
    std::vector<int64_t> older;                    // [end] -> next older end of its hash, or -1
  };
  Ends& ends(int64_t size) { return ends_[static_cast<size_t>(size - options_.min_ngram)]; }

  PromptLookupOptions options_;
  std::vector<Token> tokens_;
  int64_t indexed_ = 0;     // ends below it are in the index
  std::vector<Ends> ends_;  // [size - min_ngram]
};

}  // namespace specdec
