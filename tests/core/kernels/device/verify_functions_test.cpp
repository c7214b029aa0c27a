// Verification at its boundaries: uniform numbers at, just below and just above each acceptance
// ratio and cumulative sum, decided on plain pointers and by the verifiers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/kernels/device/verify.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

constexpr int32_t kTokens = 6;
using Probs = std::array<double, kTokens>;

constexpr double kLargestUniform = 1.0 - 0x1p-53;

// Sums and residuals of these are exact.
constexpr Probs kTarget = {0, 1. / 8, 3. / 8, 3. / 8, 1. / 8, 0};
constexpr Probs kDrafted = {1. / 8, 1. / 8, 1. / 8, 1. / 8, 1. / 2, 0};
constexpr Probs kSharper = {0, 1. / 4, 1. / 2, 1. / 8, 1. / 8, 0};

/// Gives the uniform numbers that it is told, and draws as the definition says: the first token at
/// which the sum exceeds the number.
class ForcedRandomness final : public Randomness {
 public:
  explicit ForcedRandomness(std::vector<double> uniforms) : uniforms_(std::move(uniforms)) {}
  using Randomness::draw;
  double uniform() { return uniforms_.at(used_++); }
  bool accepts(double target, double drafted) {  // as the kernels draw
    return device::accepts(uniform(), target, drafted);
  }
  bool bernoulli(double probability) override { return uniform() < probability; }
  int64_t draw(std::span<const double> weights) override {
    const double target = uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
    double sum = 0.0;
    for (size_t i = 0; i < weights.size(); ++i) {
      sum += weights[i];
      if (sum > target) {
        return static_cast<int64_t>(i);
      }
    }
    throw std::logic_error("the sum never exceeds the number");
  }
  void seek(int64_t /*position*/, Purpose /*purpose*/) override {}
  size_t used() const { return used_; }

 private:
  std::vector<double> uniforms_;
  size_t used_ = 0;
};

/// A draft and distributions as plain pointers.
struct PlainDraft {
  std::vector<int32_t> tokens, parents;
  std::vector<Probs> targets;            // after each node
  std::vector<const Probs*> drawn_from;  // of each node's children; nullptr = none

  void add(int32_t token, int32_t parent, const Probs& target, const Probs* drawn) {
    tokens.push_back(token);
    parents.push_back(parent);
    targets.push_back(target);
    drawn_from.push_back(drawn);
  }
  Draft draft() const {
    Draft draft = Draft::root(tokens[0]);
    for (size_t node = 1; node < tokens.size(); ++node) {
      draft.add(tokens[node], parents[node]);
    }
    for (size_t node = 0; node < tokens.size(); ++node) {
      if (drawn_from[node] != nullptr) {
        draft.child_probs[node] = std::ssize(draft.probs);
        draft.probs.emplace_back(
            std::vector<double>(drawn_from[node]->begin(), drawn_from[node]->end()));
      }
    }
    return draft;
  }
  Tensor target() const {
    Tensor rows = at::empty({static_cast<int64_t>(targets.size()), kTokens}, at::kDouble);
    for (size_t node = 0; node < targets.size(); ++node) {
      std::copy(targets[node].begin(), targets[node].end(),
                rows[static_cast<int64_t>(node)].mutable_data_ptr<double>());
    }
    return rows;
  }
};

void divide_by_sum(Probs& probs) {
  const double sum = std::accumulate(probs.begin(), probs.end(), 0.0);
  for (double& prob : probs) {
    prob /= sum > 0.0 ? sum : 1.0;
  }
}

/// What device/verify.h walks, for every function of it.
struct PlainWalk {
  const PlainDraft& plain;
  std::vector<int64_t> path = {};
  Probs p = {}, q = {};
  bool drawn = false;

  int32_t child_after(int32_t node, int32_t last) const {
    for (auto child = static_cast<size_t>(last) + 1; child < plain.tokens.size(); ++child) {
      if (plain.parents[child] == node) {
        return static_cast<int32_t>(child);
      }
    }
    return -1;
  }
  int32_t token(int32_t node) const { return plain.tokens[static_cast<size_t>(node)]; }
  int32_t choose(int32_t node) const {
    const Probs& probs = plain.targets[static_cast<size_t>(node)];
    return static_cast<int32_t>(std::max_element(probs.begin(), probs.end()) - probs.begin());
  }
  void enter(int32_t node) {
    path.push_back(node);
    load(node);
  }
  double target(int32_t child) const { return p[static_cast<size_t>(token(child))]; }
  double drafted(int32_t child) const { return drawn ? q[static_cast<size_t>(token(child))] : 1.0; }
  bool reject(int32_t child) {
    const Probs before = p;
    subtract(child, 1.0);
    q[static_cast<size_t>(token(child))] = 0.0;
    divide_by_sum(q);
    if (std::accumulate(p.begin(), p.end(), 0.0) > 0.0) {
      divide_by_sum(p);
      return true;
    }
    p = before;
    return false;
  }
  void load(int32_t node) {
    p = plain.targets[static_cast<size_t>(node)];
    const Probs* from = plain.drawn_from[static_cast<size_t>(node)];
    drawn = from != nullptr;
    q = drawn ? *from : Probs{};
  }
  void subtract(int32_t child, double scale) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double chosen = static_cast<int32_t>(i) == token(child) ? 1.0 : 0.0;
      p[i] = device::residual_weight(scale * p[i], drawn ? q[i] : chosen);
    }
  }
};

/// Block verification of a chain, whose probabilities are those of each child at its own place.
struct PlainBlock {
  PlainWalk walk;

  double target(int32_t child) {
    walk.load(child - 1);
    return walk.target(child);
  }
  double drafted(int32_t child) {
    walk.load(child - 1);
    return walk.drafted(child);
  }
  double leave(int32_t tokens, double weight) {
    walk.load(tokens);
    walk.subtract(tokens + 1, weight);
    return std::accumulate(walk.p.begin(), walk.p.end(), 0.0);
  }
  void restore(int32_t tokens) { walk.load(tokens); }
};

VerifyResult plain_rejection(const PlainDraft& plain, ForcedRandomness& random) {
  PlainWalk walk{plain};
  device::verify_by_rejection(&walk, &random);
  return {walk.path, static_cast<Token>(random.draw(walk.p))};
}

VerifyResult plain_block(const PlainDraft& plain, ForcedRandomness& random) {
  PlainBlock chain{{plain}};
  const auto length = static_cast<int32_t>(plain.tokens.size()) - 1;
  const int32_t accepted = device::verify_block<double>(&chain, &random, length);
  return {chain_path(accepted + 1), static_cast<Token>(random.draw(chain.walk.p))};
}

/// 0, the largest number below 1, and three at each boundary.
std::vector<double> boundaries() {
  std::set<double> at = {0.0, 1.0, 1.0 / 7};  // 1/7: an acceptance of block verification
  for (int i = 0; i <= 16; ++i) {
    at.insert(i / 16.0);
  }
  std::set<double> all;
  for (const double boundary : at) {
    for (const double uniform :
         {std::nextafter(boundary, 0.0), boundary, std::nextafter(boundary, 2.0)}) {
      if (uniform < 1.0) {
        all.insert(uniform);
      }
    }
  }
  return {all.begin(), all.end()};
}

/// A root of three drawn siblings, one of which has two deterministic children.
PlainDraft tree() {
  PlainDraft tree;
  tree.add(5, -1, kTarget, &kDrafted);
  tree.add(4, 0, kSharper, nullptr);
  tree.add(0, 0, kTarget, nullptr);
  tree.add(3, 0, kSharper, nullptr);
  tree.add(2, 3, kTarget, nullptr);
  tree.add(1, 3, kSharper, nullptr);
  return tree;
}

PlainDraft chain() {
  PlainDraft chain;
  chain.add(5, -1, kTarget, &kDrafted);
  chain.add(4, 0, kSharper, nullptr);
  chain.add(2, 1, kTarget, nullptr);
  return chain;
}

template <class Plain>
void expect_equal_at_boundaries(const PlainDraft& plain, const Verifier& verifier, Plain decide,
                                size_t paths) {
  const std::vector<double> uniforms = boundaries();
  std::mt19937_64 random(3);
  std::set<std::vector<int64_t>> seen;
  const Draft draft = plain.draft();
  const Tensor target = plain.target();
  for (int run = 0; run < 20'000; ++run) {
    std::vector<double> forced(8);
    for (double& uniform : forced) {
      uniform = uniforms[random() % uniforms.size()];
    }
    ForcedRandomness host(forced);
    ForcedRandomness device(forced);
    const VerifyResult expected = verify_with(verifier, draft, target, 1, host);
    const VerifyResult decided = decide(plain, device);
    ASSERT_EQ(decided.path, expected.path) << testing::PrintToString(forced);
    ASSERT_EQ(decided.next, expected.next) << testing::PrintToString(forced);
    ASSERT_EQ(device.used(), host.used());
    seen.insert(expected.path);
  }
  EXPECT_EQ(seen.size(), paths);
}

TEST(DeviceVerifyTest, RejectionDecidesAsTheVerifierDoesAtEveryBoundary) {
  expect_equal_at_boundaries(tree(), RejectionVerifier(), plain_rejection, 4);
  expect_equal_at_boundaries(chain(), RejectionVerifier(), plain_rejection, 3);
}

TEST(DeviceVerifyTest, BlocksDecideAsTheVerifierDoesAtEveryBoundary) {
  expect_equal_at_boundaries(chain(), BlockVerifier(), plain_block, 3);
}

TEST(DeviceVerifyTest, MatchesAsTheVerifierDoes) {
  const PlainDraft plain = tree();
  PlainWalk walk{plain};
  const int32_t next = device::match(&walk);
  ForcedRandomness none({});
  const VerifyResult expected =
      verify_with(ExactMatchVerifier(), plain.draft(), plain.target(), 1, none);
  EXPECT_EQ(walk.path, expected.path);
  EXPECT_EQ(next, expected.next);
}

/// Whether a token of this target and draft probability stays at a uniform number.
bool stays(double target, double drafted, double uniform) {
  const Probs p = {target, 1.0 - target, 0, 0, 0, 0};
  const Probs q = {drafted, 0, 1.0 - drafted, 0, 0, 0};
  PlainDraft plain;
  plain.add(5, -1, p, &q);
  plain.add(0, 0, p, nullptr);
  ForcedRandomness random({uniform, 0.0});
  return plain_rejection(plain, random).path.size() == 2;
}

TEST(DeviceVerifyTest, AcceptsBelowTheRatioAlone) {
  EXPECT_TRUE(stays(0.25, 0.5, std::nextafter(0.5, 0.0)));
  EXPECT_FALSE(stays(0.25, 0.5, 0.5));
  EXPECT_FALSE(stays(0.25, 0.5, std::nextafter(0.5, 1.0)));
  EXPECT_TRUE(stays(0x1p-60, 0.5, 0.0));
  EXPECT_FALSE(stays(0.0, 0.5, 0.0)) << "u * q <= p would accept it";
  EXPECT_TRUE(stays(0.5, 0.5, kLargestUniform));
  EXPECT_FALSE(stays(0.25, 0.5, kLargestUniform));
}

/// The host's draw skips blocks, so `before` tokens without mass lie before those with it.
Token drawn(double uniform, const Probs& probs, size_t before) {
  std::vector<double> row(before, 0.0);
  row.insert(row.end(), probs.begin(), probs.end());
  double passed = 0.0;
  return device::pick(row.data(), static_cast<int32_t>(row.size()), uniform, passed) -
         static_cast<Token>(before);
}

TEST(DeviceVerifyTest, DrawsTheFirstTokenWhoseSumExceedsTheNumber) {
  for (const size_t before : {size_t{0}, size_t{300}}) {
    EXPECT_EQ(drawn(0.0, kTarget, before), 1) << "a token without mass is never drawn";
    double sum = 0.0;
    for (const int32_t token : {1, 2, 3}) {
      sum += kTarget[static_cast<size_t>(token)];
      EXPECT_EQ(drawn(std::nextafter(sum, 0.0), kTarget, before), token);
      EXPECT_EQ(drawn(sum, kTarget, before), token + 1);
      EXPECT_EQ(drawn(std::nextafter(sum, 1.0), kTarget, before), token + 1);
    }
    EXPECT_EQ(drawn(kLargestUniform, kTarget, before), 4);
    EXPECT_EQ(drawn(1.0, kTarget, before), 4) << "where rounding reaches the total";
  }
}

}  // namespace
}  // namespace specdec
