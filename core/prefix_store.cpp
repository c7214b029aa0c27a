#include "core/prefix_store.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/snapshot_error.h"

namespace specdec {
namespace {

int64_t common_tokens(TokenSpan a, TokenSpan b) {
  const auto size = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return std::mismatch(a.begin(), a.begin() + size, b.begin()).first - a.begin();
}

KvSnapshots& snapshots_of(LanguageModel& model) {
  KvSnapshots* snapshots = model.snapshots();
  if (snapshots == nullptr) {
    throw Error("this model's keys and values cannot be kept apart from it: read the text anew");
  }
  return *snapshots;
}

}  // namespace

CachedPrefix cached_prefix(LanguageModel& model, TokenSpan text) {
  KvSnapshots& snapshots = snapshots_of(model);
  const auto kept = static_cast<size_t>(std::min(model.length(), std::ssize(text)));
  return {.key = snapshots.kv_key(),
          .tokens = {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(kept)},
          .snapshot = snapshots.kv_snapshot()};
}

int64_t reusable_tokens(const CachedPrefix& prefix, TokenSpan prompt,
                        const ForwardOptions& options) {
  const std::string states = PromptStates::name_of(options);
  if (prompt.empty() || states != prefix.states.name()) {
    return 0;
  }
  const int64_t common = common_tokens(prefix.tokens, prompt.first(prompt.size() - 1));
  return prefix.snapshot->rewindable_to(states.empty() ? common
                                                       : std::min(common, prefix.states.length()));
}

ForwardResult prime_with_prefix(LanguageModel& model, TokenSpan prompt, const CachedPrefix& prefix,
                                const ForwardOptions& options) {
  KvSnapshots& snapshots = snapshots_of(model);
  if (const std::string key = snapshots.kv_key(); key != prefix.key) {
    throw SnapshotModelError(fmt::format(
        "the prefix was read by another model, or with other adapters or formats (key {}, not {}): "
        "read the prompt anew",
        prefix.key, key));
  }
  const int64_t known = reusable_tokens(prefix, prompt, options);
  if (known == 0 || std::ssize(prompt) > model.max_length()) {  // whose error is the prefill's
    return model.prefill(prompt, options);
  }
  snapshots.kv_restore(*prefix.snapshot, known);
  ForwardResult result = model.extend(prompt.subspan(static_cast<size_t>(known)), options);
  if (!prefix.states.name().empty()) {
    prefix.states.first(known).prepend_to(result);
  }
  return result;
}

ForwardResult PrefixStore::prefill(LanguageModel& model, TokenSpan prompt,
                                   const ForwardOptions& options) {
  PrefixStatistics counts{.prompts = 1, .prompt_tokens = std::ssize(prompt)};
  const std::string states = PromptStates::name_of(options);
  KvSnapshots* snapshots = model.snapshots();
  if (snapshots == nullptr || (states_ == StatesPolicy::kRecompute && !states.empty())) {
    counts.bypassed = 1;
    count(counts);
    return model.prefill(prompt, options);
  }
  const std::optional<CachedPrefix> known = match(snapshots->kv_key(), prompt, states);
  ForwardResult result =
      known ? prime_with_prefix(model, prompt, *known, options) : model.prefill(prompt, options);
  CachedPrefix read = cached_prefix(model, prompt);
  if (known) {
    counts.hits = 1;
    counts.reused_tokens = std::ssize(known->tokens);
    read.states = known->states;
  } else {
    read.states = PromptStates(options);
  }
  if (!states.empty()) {
    read.states.append(result, counts.reused_tokens);
  }
  count(counts);
  insert(std::move(read));
  return result;
}

std::optional<CachedPrefix> PrefixStore::match(const std::string& key, TokenSpan prompt,
                                               const std::string& states) {
  const std::lock_guard lock(mutex_);
  const auto tree = trees_.find({key, states});
  if (tree == trees_.end() || prompt.empty()) {
    return std::nullopt;
  }
  const auto [id, length] = tree->second.match(prompt.first(prompt.size() - 1));
  if (id < 0) {
    return std::nullopt;
  }
  make_newest(id);
  return CachedPrefix{.key = key,
                      .tokens = {prompt.begin(), prompt.begin() + length},
                      .snapshot = entries_.front().snapshot,
                      .states = entries_.front().states.first(length)};
}

void PrefixStore::insert(CachedPrefix prefix) {
  SPECDEC_CHECK(
      prefix.snapshot != nullptr && prefix.snapshot->length() >= std::ssize(prefix.tokens),
      "a prefix of {} tokens needs their keys and values", prefix.tokens.size());
  if (!prefix.states.name().empty()) {
    prefix.tokens.resize(
        std::min(prefix.tokens.size(), static_cast<size_t>(prefix.states.length())));
  }
  const auto length = std::ssize(prefix.tokens);
  const int64_t shortest = prefix.snapshot->shortest_length();
  if (length == 0 || length < shortest ||
      bytes_of(parts_of(*prefix.snapshot, prefix.states)) > max_bytes_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  PrefixTree& tree = trees_[{prefix.key, prefix.states.name()}];
  if (const auto [id, served] = tree.match(prefix.tokens);
      served == length && places_.at(id)->snapshot->shortest_length() <= shortest) {
    make_newest(id);
    return;
  }
  for (const PrefixTree::Id id : tree.beginnings(prefix.tokens)) {
    if (places_.at(id)->snapshot->shortest_length() >= shortest) {  // the text holds what it holds
      erase(id);
    }
  }
  add(tree, std::move(prefix));
  while (bytes_.bytes() > max_bytes_) {
    erase(entries_.back().id);
    ++statistics_.evicted;
  }
}

void PrefixStore::add(PrefixTree& tree, CachedPrefix prefix) {
  const PrefixTree::Id id = next_id_++;
  tree.insert(prefix.tokens, id, prefix.snapshot->shortest_length());
  bytes_.add(parts_of(*prefix.snapshot, prefix.states));
  entries_.push_front({id, &tree, std::move(prefix.snapshot), std::move(prefix.states)});
  places_.emplace(id, entries_.begin());
}

void PrefixStore::erase(PrefixTree::Id id) {
  const auto place = places_.find(id);
  const Entry& entry = *place->second;
  entry.tree->erase(id);
  bytes_.remove(parts_of(*entry.snapshot, entry.states));
  entries_.erase(place->second);
  places_.erase(place);
}

void PrefixStore::make_newest(PrefixTree::Id id) {
  entries_.splice(entries_.begin(), entries_, places_.at(id));
}

MemoryParts PrefixStore::parts_of(const KvSnapshot& snapshot, const PromptStates& states) {
  MemoryParts parts = snapshot.parts();
  const MemoryParts more = states.parts();
  parts.insert(parts.end(), more.begin(), more.end());
  return parts;
}

void PrefixStore::count(const PrefixStatistics& more) {
  const std::lock_guard lock(mutex_);
  statistics_.prompts += more.prompts;
  statistics_.hits += more.hits;
  statistics_.bypassed += more.bypassed;
  statistics_.prompt_tokens += more.prompt_tokens;
  statistics_.reused_tokens += more.reused_tokens;
}

void PrefixStore::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  places_.clear();
  trees_.clear();
  bytes_ = {};
}

int64_t PrefixStore::entries() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(entries_);
}

int64_t PrefixStore::nodes() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(trees_.begin(), trees_.end(), int64_t{0},
                         [](int64_t sum, const auto& tree) { return sum + tree.second.nodes(); });
}

int64_t PrefixStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_.bytes();
}

PrefixStatistics PrefixStore::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

ForwardResult prefill_with(PrefixStore* store, LanguageModel& model, TokenSpan prompt,
                           const ForwardOptions& options) {
  return store == nullptr ? model.prefill(prompt, options) : store->prefill(model, prompt, options);
}

}  // namespace specdec
