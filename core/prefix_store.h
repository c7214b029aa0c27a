#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/forward.h"
#include "core/kv_snapshot.h"
#include "core/language_model.h"
#include "core/memory_parts.h"
#include "core/prefix_tree.h"
#include "core/prompt_states.h"

namespace specdec {

/// A text whose keys and values are known.
struct CachedPrefix {
  std::string key;  ///< KvSnapshots::kv_key of the model that read it
  std::vector<Token> tokens;
  std::shared_ptr<const KvSnapshot> snapshot;  ///< of these tokens, or of more
  /// Where they have a name, the prefix serves prefills alone that ask for these states, as far as
  /// they go.
  PromptStates states = {};
};

/// What row 0 of a model holds of `text`, which begins with the tokens that it keeps. Throws Error
/// for a model without snapshots.
CachedPrefix cached_prefix(LanguageModel& model, TokenSpan text);

/// Tokens of a prompt that need not be fed after `prefix`: those that both begin with, but the
/// prompt's last one, whose logits are wanted; none where the snapshot is not rewindable to them,
/// or the options ask for other states than the prefix has.
int64_t reusable_tokens(const CachedPrefix& prefix, TokenSpan prompt,
                        const ForwardOptions& options = {});

/// Prefills as LanguageModel::prefill does, but takes the prompt's first tokens from the prefix, as
/// far as they are the same, and feeds the others. The results have the bits of a prefill from the
/// first token on, the states of the whole prompt among them where the options ask for these, and
/// so have the keys and values. Throws SnapshotModelError, and changes nothing, where the prefix
/// has another key.
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

/// Hidden states of prompts, which drafters may ask for of all tokens (EAGLE, block drafters): kept
/// beside keys and values, or computed again by reading such prompts whole.
enum class StatesPolicy { kKeep, kRecompute };

/// Prefixes of earlier texts, for models of any key, with a byte budget: the least recently used
/// leave first. A radix tree for each key (and each choice of states) finds what a prompt begins
/// with; texts refer to pages, which those that begin alike share (Kwon et al., 2023,
/// arXiv:2309.06180; Zheng et al., 2023, arXiv:2312.07104). Serves several threads, each with
/// models of its own; what it holds may outlive the models.
class PrefixStore {
 public:
  /// Bytes of keys, values and states that it holds at most.
  explicit PrefixStore(int64_t max_bytes, StatesPolicy states = StatesPolicy::kKeep)
      : max_bytes_(max_bytes), states_(states) {}
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  /// Prefills row 0 as LanguageModel::prefill does, and forgets the others; what the longest known
  /// prefix holds is not fed again, and the prompt is known afterwards. Reads the whole prompt for
  /// models without snapshots, and with StatesPolicy::kRecompute where the options ask for states
  /// of all its tokens (Hidden::kAll, captured layers).
  ForwardResult prefill(LanguageModel& model, TokenSpan prompt, const ForwardOptions& options);

  /// The prefix with most reusable tokens of a prompt, which becomes the newest; its tokens are
  /// these. nullopt where none has any. `states`: PromptStates::name().
  std::optional<CachedPrefix> match(const std::string& key, TokenSpan prompt,
                                    const std::string& states = "");
  /// Remembers a text, as far as its states go; those that it holds are forgotten. One that another
  /// holds becomes the newest as that, one that is larger than the budget is left out.
  void insert(CachedPrefix prefix);
  void clear();

  int64_t entries() const;
  /// Nodes of the trees.
  int64_t nodes() const;
  /// Bytes of the memory that its texts refer to, what several share once; at most the budget.
  int64_t bytes() const;
  PrefixStatistics statistics() const;

 private:
  struct Entry {
    PrefixTree::Id id;
    PrefixTree* tree;
    std::shared_ptr<const KvSnapshot> snapshot;
    PromptStates states;
  };
  using Entries = std::list<Entry>;  // newest first

  static MemoryParts parts_of(const KvSnapshot& snapshot, const PromptStates& states);
  void count(const PrefixStatistics& more);
  void make_newest(PrefixTree::Id id);
  void erase(PrefixTree::Id id);
  void add(PrefixTree& tree, CachedPrefix prefix);

  const int64_t max_bytes_;
  const StatesPolicy states_;
  mutable std::mutex mutex_;                                         // of all that follows
  std::map<std::pair<std::string, std::string>, PrefixTree> trees_;  // by key and states
  Entries entries_;
  std::unordered_map<PrefixTree::Id, Entries::iterator> places_;
  SharedBytes bytes_;
  PrefixTree::Id next_id_ = 0;
  PrefixStatistics statistics_;
};

/// PrefixStore::prefill, or without a store (nullptr) LanguageModel::prefill.
ForwardResult prefill_with(PrefixStore* store, LanguageModel& model, TokenSpan prompt,
                           const ForwardOptions& options = {});

}  // namespace specdec
