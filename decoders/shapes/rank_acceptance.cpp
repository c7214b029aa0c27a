#include "decoders/shapes/rank_acceptance.h"

#include <algorithm>
#include <utility>

namespace specdec {

RankAcceptance::RankAcceptance(std::vector<double> first_guess, double weight, double memory)
    : first_guess_(std::move(first_guess)), weight_(weight), memory_(memory) {
  forget();
}

void RankAcceptance::forget() {
  tried_.assign(first_guess_.size(), weight_);
  accepted_.clear();
  for (const double probability : first_guess_) {
    accepted_.push_back(probability * weight_);
  }
}

void RankAcceptance::weaken() {
  const std::vector<double> learned = probabilities();
  for (size_t rank = 0; rank < tried_.size(); ++rank) {
    tried_[rank] = std::min(tried_[rank], weight_);
    accepted_[rank] = learned[rank] * tried_[rank];
  }
}

std::vector<double> RankAcceptance::probabilities() const {
  std::vector<double> probabilities;
  double left = 1.0;
  for (size_t rank = 0; rank < tried_.size(); ++rank) {
    const double highest = std::min(left, probabilities.empty() ? 1.0 : probabilities.back());
    probabilities.push_back(std::min(highest, accepted_[rank] / tried_[rank]));
    left -= probabilities.back();
  }
  return probabilities;
}

void RankAcceptance::observe(const Draft& draft, const VerifyResult& result) {
  std::vector<bool> fades(tried_.size(), true);  // once a draft, and only where it says something
  for (size_t i = 0; i < result.path.size(); ++i) {
    const std::vector<int64_t> children = draft.children(result.path[i]);
    for (size_t rank = 0; rank < std::min(children.size(), tried_.size()); ++rank) {
      if (fades[rank]) {
        tried_[rank] *= memory_;
        accepted_[rank] *= memory_;
        fades[rank] = false;
      }
      const bool kept = i + 1 < result.path.size() && result.path[i + 1] == children[rank];
      tried_[rank] += 1.0;
      accepted_[rank] += kept ? 1.0 : 0.0;
    }
  }
}

}  // namespace specdec
