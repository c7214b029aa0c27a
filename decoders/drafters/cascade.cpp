#include "decoders/drafters/cascade.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

bool is_drawn(const Draft& draft) {
  return std::any_of(draft.child_probs.begin(), draft.child_probs.end(),
                     [](int64_t row) { return row >= 0; });
}

/// Refuses a member with a min_tokens or max_tokens that is not allowed.
void check_member(const CascadeMember& member) {
  if (member.min_tokens < 1 || (member.min_tokens > 1 && member.drafter->draws())) {
    throw ConfigError(fmt::format(
        "cascade: min_tokens is {}; it must be at least 1, and 1 for a drafter that draws its "
        "tokens at random, since dropping a draft that was drawn changes the output's "
        "distribution (let "
        "it take its best tokens: sample: false)",
        member.min_tokens));
  }
  if (member.max_tokens < member.min_tokens) {
    throw ConfigError(fmt::format("cascade: max_tokens is {}, fewer than min_tokens ({})",
                                  member.max_tokens, member.min_tokens));
  }
}

std::vector<std::unique_ptr<Drafter>> drafters_of(std::vector<CascadeMember>& members) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (CascadeMember& member : members) {
    check_member(member);
    drafters.push_back(std::move(member.drafter));
  }
  return drafters;
}

}  // namespace

CascadeDrafter::CascadeDrafter(std::vector<CascadeMember> members)
    : DrafterGroup(drafters_of(members)), members_(std::move(members)) {}

Draft CascadeDrafter::propose(const DraftContext& context) {
  Draft draft = Draft::root(context.committed.back());
  bool found = false;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (found) {
      skip_by(i, context);
      continue;
    }
    const int64_t allowed = std::min(context.max_tokens, members_[i].max_tokens);
    DraftContext own = context;
    own.max_tokens = allowed;
    own.max_depth = std::min(context.max_depth, allowed);  // nothing deeper would be kept
    Draft proposed = ask(i, own);
    // A step that allows few tokens still lets the first member have its turn. A drafter that draws
    // only where the shape allows it cannot say so in advance.
    const int64_t enough = std::max<int64_t>(1, std::min(members_[i].min_tokens, allowed));
    if (proposed.proposed() >= enough || is_drawn(proposed)) {
      draft = std::move(proposed);
      found = true;
    }
  }
  return draft;
}

}  // namespace specdec
