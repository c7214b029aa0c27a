#include <algorithm>
#include <map>
#include <memory>

#include "decoders/drafter.h"
#include "experiments/cli.h"

using namespace specdec;

/// Remembers which token followed which, and bets that it will again.
class BigramDrafter final : public Drafter {
 public:
  explicit BigramDrafter(int64_t longest) : longest_(longest) {}
  void reset() override {
    next_.clear();
    seen_ = 1;
  }
  Draft propose(const DraftContext& context) override {
    for (; seen_ < context.committed.size(); ++seen_) {
      next_[context.committed[seen_ - 1]] = context.committed[seen_];
    }
    Draft draft = Draft::root(context.committed.back());
    while (draft.proposed() < std::min(context.max_tokens, longest_) &&
           next_.contains(draft.tokens.back())) {
      draft.add(next_[draft.tokens.back()], draft.size() - 1);
    }
    return draft;
  }

 private:
  int64_t longest_;
  std::map<Token, Token> next_;
  size_t seen_ = 1;
};

int main(int argc, char** argv) {
  Components components = builtin_components();
  components.drafters.add("bigram",
                          {.help = "what followed the token last time\nlongest: 8",
                           .prepare = [](const ConfigNode& node, const RunPlan&) {
                             const auto longest = node.get<int64_t>("longest", 8, {1, 64});
                             return [longest](BuildContext&) {
                               return std::make_unique<BigramDrafter>(longest);
                             };
                           }});
  return run_cli(argc, argv, components);
}
