#include "tests/support/broken_components.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace specdec {
namespace {

Tensor distribution_after(const LogitTable& table, const DraftContext& context) {
  const std::vector<double> logits = table(context.committed);
  Tensor distribution = at::empty({static_cast<int64_t>(logits.size())}, at::kDouble);
  target_distribution(std::span<const double>(logits), context.committed, context.sampling,
                      {distribution.data_ptr<double>(), logits.size()});
  return distribution;
}

Tensor row_of(const TokenProbs& probs) { return at::tensor(probs.row(), at::kDouble); }

TokenProbs probs_of(const Tensor& row) {
  const auto* values = row.const_data_ptr<double>();
  return TokenProbs(std::vector<double>(values, values + row.numel()));
}

Token best_of(const Tensor& distribution) {
  return static_cast<Token>(distribution.argmax().item<int64_t>());
}

/// One child, declared as drawn.
Draft drawn_child(const DraftContext& context, const Tensor& distribution, Token token) {
  Draft draft = Draft::root(context.committed.back());
  draft.probs = {probs_of(distribution)};
  draft.child_probs[0] = 0;
  draft.add(token, 0);
  return draft;
}

/// A drawn chain up to the first token that `drops` does not like.
Draft cut(const Draft& drawn,
          const std::function<bool(const Tensor& distribution, Token token)>& drops) {
  Draft kept = Draft::root(drawn.tokens.front());
  kept.probs = drawn.probs;
  for (int64_t node = 1; node < drawn.size() && !drawn.probs.empty(); ++node) {
    const Token token = drawn.tokens[static_cast<size_t>(node)];
    if (drops(row_of(drawn.probs[static_cast<size_t>(node) - 1]), token)) {
      break;
    }
    kept.child_probs.back() = node - 1;
    kept.add(token, node - 1);
  }
  return kept;
}

/// Cai et al., 2024: accepts what is likely enough beside the distribution's entropy.
bool is_typical(const Tensor& p, int64_t token) {
  constexpr double kEpsilon = 0.3;
  constexpr double kDelta = 0.09;
  const double entropy = -at::special_xlogy(p, p).sum().item<double>();
  return p[token].item<double>() >= std::min(kEpsilon, kDelta * std::exp(-entropy));
}

}  // namespace

VerifyResult BuggyVerifier::verify(const Draft& draft, TargetProbs& target, int64_t position,
                                   Randomness& random) const {
  VerifyResult result{.path = {0}};
  while (true) {
    const int64_t node = result.path.back();
    const Tensor original = row_of(target.after(node));
    Tensor p = original.clone();
    const int64_t accepted = first_accepted(draft, node, p, random);
    if (accepted < 0) {
      result.next = correction(original, p, position, random);
      return result;
    }
    result.path.push_back(accepted);
  }
}

Token BuggyVerifier::correction(const Tensor& target, const Tensor& p, int64_t position,
                                Randomness& random) const {
  const bool from_target = bug_ == Bug::kResidualFromTarget || bug_ == Bug::kTypicalAcceptance;
  const Tensor& weights = from_target ? target : p;
  if (bug_ == Bug::kSharedRandomNumber) {
    random.seek(position, Purpose::kDraft);
  }
  return static_cast<Token>(
      random.draw({weights.const_data_ptr<double>(), static_cast<size_t>(weights.numel())}));
}

int64_t BuggyVerifier::first_accepted(const Draft& draft, int64_t node, Tensor& p,
                                      Randomness& random) const {
  const int64_t distribution = draft.child_probs[static_cast<size_t>(node)];
  const int64_t vocab = p.numel();
  Tensor q = distribution >= 0 ? row_of(*draft.drawn_from(node)) : Tensor();
  for (const int64_t child : draft.children(node)) {
    const int64_t token = draft.tokens[static_cast<size_t>(child)];
    if (bug_ == Bug::kFirstUnchecked && node == 0) {
      return child;
    }
    if (bug_ == Bug::kTypicalAcceptance) {
      if (is_typical(p, token)) {
        return child;
      }
      continue;
    }
    Tensor drawn_from = q;
    if (distribution < 0) {
      drawn_from = at::one_hot(at::tensor(token), vocab)[0].to(at::kDouble);
    }
    if (distribution < 0 && bug_ == Bug::kUniformQ) {
      drawn_from = at::full({vocab}, 1.0 / static_cast<double>(vocab), at::kDouble);
    }
    const double ratio = p[token].item<double>() / drawn_from[token].item<double>();
    const Tensor rest = (p - drawn_from).clamp_min(0.0);
    const double sum = rest.sum().item<double>();
    if (bug_ == Bug::kAlwaysAccepts || random.bernoulli(ratio) || sum == 0.0) {
      return child;
    }
    p = bug_ == Bug::kResidualNotNormalised ? rest : rest / sum;
    if (distribution >= 0 && bug_ != Bug::kSiblingsIndependent) {
      q[token] = 0.0;
      q = q / q.sum();
    }
  }
  return -1;
}

Draft WrongDistributionDrafter::propose(const DraftContext& context) {
  const Tensor distribution = distribution_after(table_, context);
  return drawn_child(context, distribution, best_of(distribution));
}

Draft DroppingDrafter::propose(const DraftContext& context) {
  return cut(tree_.propose(context), [](const Tensor& distribution, Token token) {
    return distribution[token].item<double>() < 0.35;
  });
}

Draft StrippingDrafter::propose(const DraftContext& context) {
  return cut(tree_.propose(context),
             [](const Tensor& /*distribution*/, Token token) { return token == kForbidden; });
}

Draft RerankingDrafter::propose(const DraftContext& context) {
  const Tensor distribution = distribution_after(table_, context);
  Tensor left = distribution.clone();
  const auto draw = [&] {
    const std::span<const double> weights(left.const_data_ptr<double>(),
                                          static_cast<size_t>(left.numel()));
    const int64_t token = context.random.draw(weights);
    left[token] = 0.0;
    return token;
  };
  int64_t kept = draw();
  if (left.sum().item<double>() > 0.0) {
    const int64_t other = draw();
    kept = distribution[other].item<double>() > distribution[kept].item<double>() ? other : kept;
  }
  return drawn_child(context, distribution, static_cast<Token>(kept));
}

}  // namespace specdec
