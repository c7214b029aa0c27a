#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "core/forward.h"
#include "core/kv_snapshot.h"
#include "core/language_model.h"

namespace specdec {

/// A text whose keys and values are known.
struct CachedPrefix {
  std::string key;  ///< KvSnapshots::kv_key of the model that read it
  std::vector<Token> tokens;
  std::shared_ptr<const KvSnapshot> snapshot;  ///< of these tokens, or of more
};

/// What row 0 of a model holds of `text`, which begins with the tokens that it keeps. Throws Error
/// for a model without snapshots.
CachedPrefix cached_prefix(LanguageModel& model, TokenSpan text);

/// Tokens of a prompt that need not be fed after `prefix`: those that both begin with, but the
/// prompt's last one, whose logits are wanted; none where the snapshot is not rewindable to them.
int64_t reusable_tokens(const CachedPrefix& prefix, TokenSpan prompt);

/// Prefills as LanguageModel::prefill does, but takes the prompt's first tokens from the prefix, as
/// far as they are the same, and feeds the others. The results are those of the fed tokens: logits
/// and keys and values have the bits of a prefill from the first token on. Throws
/// SnapshotModelError, and changes nothing, where the prefix has another key.
ForwardResult prime_with_prefix(LanguageModel& model, TokenSpan prompt, const CachedPrefix& prefix,
                                const ForwardOptions& options = {});

/// Counts of a PrefixStore since it was made.
struct PrefixStatistics {
  int64_t prompts = 0;   ///< that were read through it
  int64_t hits = 0;      ///< of them, those that began with something known
  int64_t bypassed = 0;  ///< of them, those that had to be read whole: see PrefixStore::prefill
  int64_t prompt_tokens = 0;  ///< of all prompts
  int64_t reused_tokens = 0;  ///< of them, those that were not fed
  int64_t evicted = 0;        ///< prefixes that left for want of room
};

/// Prefixes of earlier texts, for models of any key, with a byte budget: the least recently used
/// leave first. Serves one thread; what it holds may outlive the models.
class PrefixStore {
 public:
  /// Bytes of keys and values that it holds at most.
  explicit PrefixStore(int64_t max_bytes) : max_bytes_(max_bytes) {}
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  /// Prefills row 0 as LanguageModel::prefill does, and forgets the others; what the longest known
  /// prefix holds is not fed again, and the prompt is known afterwards. Reads the whole prompt
  /// where the options ask for the results of all its tokens (Hidden::kAll, captured layers), and
  /// for models without snapshots.
  ForwardResult prefill(LanguageModel& model, TokenSpan prompt, const ForwardOptions& options);

  /// The entry with most reusable tokens of a prompt, which becomes the newest; nullptr where none
  /// has any. Valid until the next call that is not const.
  const CachedPrefix* match(const std::string& key, TokenSpan prompt);
  /// Remembers a text; those that it begins with are forgotten, since it holds them. One that is
  /// larger than the budget is left out.
  void insert(CachedPrefix prefix);
  void clear();

  int64_t entries() const { return std::ssize(entries_); }
  /// Sum of KvSnapshot::bytes; at most the budget.
  int64_t bytes() const { return bytes_; }
  const PrefixStatistics& statistics() const { return statistics_; }

 private:
  using Entries = std::list<CachedPrefix>;  // newest first
  Entries::iterator erase(Entries::iterator entry);

  int64_t max_bytes_;
  int64_t bytes_ = 0;
  Entries entries_;
  PrefixStatistics statistics_;
};

/// PrefixStore::prefill, or without a store (nullptr) LanguageModel::prefill.
ForwardResult prefill_with(PrefixStore* store, LanguageModel& model, TokenSpan prompt,
                           const ForwardOptions& options = {});

}  // namespace specdec
