#include "core/prefix_store.h"

#include <algorithm>
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

int64_t reusable_tokens(const CachedPrefix& prefix, TokenSpan prompt) {
  return prompt.empty() ? 0
                        : prefix.snapshot->rewindable_to(
                              common_tokens(prefix.tokens, prompt.first(prompt.size() - 1)));
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
  const int64_t known = reusable_tokens(prefix, prompt);
  if (known == 0 || std::ssize(prompt) > model.max_length()) {  // whose error is the prefill's
    return model.prefill(prompt, options);
  }
  snapshots.kv_restore(*prefix.snapshot, known);
  return model.extend(prompt.subspan(static_cast<size_t>(known)), options);
}

ForwardResult PrefixStore::prefill(LanguageModel& model, TokenSpan prompt,
                                   const ForwardOptions& options) {
  ++statistics_.prompts;
  statistics_.prompt_tokens += std::ssize(prompt);
  KvSnapshots* snapshots = model.snapshots();
  if (snapshots == nullptr || options.hidden == Hidden::kAll || !options.capture_layers.empty()) {
    ++statistics_.bypassed;
    return model.prefill(prompt, options);
  }
  const CachedPrefix* known = match(snapshots->kv_key(), prompt);
  ForwardResult result = known == nullptr ? model.prefill(prompt, options)
                                          : prime_with_prefix(model, prompt, *known, options);
  if (known != nullptr) {
    ++statistics_.hits;
    statistics_.reused_tokens += reusable_tokens(*known, prompt);
  }
  insert(cached_prefix(model, prompt));
  return result;
}

ForwardResult prefill_with(PrefixStore* store, LanguageModel& model, TokenSpan prompt,
                           const ForwardOptions& options) {
  return store == nullptr ? model.prefill(prompt, options) : store->prefill(model, prompt, options);
}

const CachedPrefix* PrefixStore::match(const std::string& key, TokenSpan prompt) {
  auto best = entries_.end();
  int64_t most = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int64_t known = entry->key == key ? reusable_tokens(*entry, prompt) : 0;
    if (known > most) {
      best = entry;
      most = known;
    }
  }
  if (best == entries_.end()) {
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, best);
  return &entries_.front();
}

void PrefixStore::insert(CachedPrefix prefix) {
  SPECDEC_CHECK(
      prefix.snapshot != nullptr && prefix.snapshot->length() >= std::ssize(prefix.tokens),
      "a prefix of {} tokens needs their keys and values", prefix.tokens.size());
  const int64_t bytes = prefix.snapshot->bytes();
  if (bytes > max_bytes_) {
    return;
  }
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool begins = entry->key == prefix.key &&
                        common_tokens(entry->tokens, prefix.tokens) == std::ssize(entry->tokens);
    entry = begins ? erase(entry) : std::next(entry);
  }
  while (bytes_ + bytes > max_bytes_) {
    erase(std::prev(entries_.end()));
    ++statistics_.evicted;
  }
  bytes_ += bytes;
  entries_.push_front(std::move(prefix));
}

void PrefixStore::clear() {
  entries_.clear();
  bytes_ = 0;
}

PrefixStore::Entries::iterator PrefixStore::erase(Entries::iterator entry) {
  bytes_ -= entry->snapshot->bytes();
  return entries_.erase(entry);
}

}  // namespace specdec
