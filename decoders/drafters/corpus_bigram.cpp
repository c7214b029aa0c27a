#include "decoders/drafters/corpus_bigram.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"

namespace specdec {

BigramTable::BigramTable(std::span<const std::vector<Token>> documents) {
  std::map<std::pair<Token, Token>, int64_t> counts;
  std::unordered_map<Token, int64_t> totals;
  for (const std::vector<Token>& document : documents) {
    for (size_t i = 1; i < document.size(); ++i) {
      ++counts[{document[i - 1], document[i]}];
      ++totals[document[i - 1]];
    }
  }
  for (const auto& [pair, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(totals[pair.first]);
    table_[pair.first].push_back({pair.second, share, pair.second});
  }
  for (auto& [token, followers] : table_) {
    std::stable_sort(followers.begin(), followers.end(),
                     [](const Follower& a, const Follower& b) { return a.weight > b.weight; });
  }
}

std::vector<Follower> BigramTable::followers(Token token, int64_t count) const {
  const auto entry = table_.find(token);
  if (entry == table_.end()) {
    return {};
  }
  const auto wanted = std::min(count, static_cast<int64_t>(entry->second.size()));
  return {entry->second.begin(), entry->second.begin() + wanted};
}

CorpusBigramDrafter::CorpusBigramDrafter(std::shared_ptr<const BigramTable> table,
                                         const CorpusBigramOptions& options)
    : table_(std::move(table)), options_(options) {
  if (!(options.min_probability >= 0.0 && options.min_probability <= 1.0)) {
    throw ConfigError(fmt::format("corpus_bigram needs min_probability from 0 to 1, not {}",
                                  options.min_probability));
  }
}

Draft CorpusBigramDrafter::propose(const DraftContext& context) {
  const Token root = context.committed.back();
  return grow_best_first(root, root,
                         {.max_tokens = context.max_tokens,
                          .max_depth = context.max_depth,
                          .max_branches = context.max_branches,
                          .min_weight = options_.min_probability},
                         [this](int64_t place, int64_t count) {
                           return table_->followers(static_cast<Token>(place), count);
                         })
      .draft;
}

}  // namespace specdec
