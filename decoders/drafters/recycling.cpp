#include "decoders/drafters/recycling.h"

#include <algorithm>

#include "core/error.h"
#include "core/likely_tokens.h"
#include "decoders/drafters/best_first.h"

namespace specdec {
namespace {

constexpr double kDepthWeight = 0.65;  // see the class: fits the paper's tree best

}  // namespace

RecyclingDrafter::RecyclingDrafter(const RecyclingOptions& options) : options_(options) {
  if (options.candidates < 1) {
    throw ConfigError(
        fmt::format("recycling keeps at least 1 candidate a token, not {}", options.candidates));
  }
}

void RecyclingDrafter::reset() {
  if (!options_.persist) {
    forget();
  }
}

void RecyclingDrafter::learn(const StepResult& step) {
  std::vector<bool> accepted(step.draft.tokens.size());
  for (const int64_t node : step.verified.path) {
    accepted[static_cast<size_t>(node)] = true;
  }
  // Accepted nodes come last: these count.
  for (const bool taken : {false, true}) {
    for (int64_t node = 0; node < step.draft.size(); ++node) {
      if (accepted[static_cast<size_t>(node)] == taken) {
        table_[step.draft.tokens[static_cast<size_t>(node)]] =
            highest_logits(LogitRow::of(step.result.logits, node), options_.candidates);
      }
    }
  }
}

void RecyclingDrafter::skip(const DraftContext& context) {
  if (context.last_step != nullptr) {
    learn(*context.last_step);
  }
}

Draft RecyclingDrafter::propose(const DraftContext& context) {
  skip(context);
  const Followers followers = [this](int64_t place, int64_t count) {
    std::vector<Follower> found;
    const auto entry = table_.find(static_cast<Token>(place));
    if (entry != table_.end()) {
      const std::vector<Token>& tokens = entry->second;
      for (size_t rank = 0; rank < std::min(tokens.size(), static_cast<size_t>(count)); ++rank) {
        found.push_back({tokens[rank], kDepthWeight / static_cast<double>(rank + 1), tokens[rank]});
      }
    }
    return found;
  };
  const Token root = context.committed.back();
  return grow_best_first(root, root,
                         {.max_tokens = context.max_tokens,
                          .max_depth = context.max_depth,
                          .max_branches = context.max_branches},
                         followers)
      .draft;
}

}  // namespace specdec
