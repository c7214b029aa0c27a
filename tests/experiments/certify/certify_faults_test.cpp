// Components with faults that are no wrong rule: certify says which one has it, and what it is.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <sstream>

#include "core/error.h"
#include "decoders/drafters/distribution_drafter.h"
#include "experiments/certify/certify.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kFaultVocab = 3;

class FaultyDrafter final : public Drafter {
 public:
  using Spoil = std::function<void(Draft&, const DraftContext&)>;
  explicit FaultyDrafter(Spoil spoil) : spoil_(std::move(spoil)) {}
  Draft propose(const DraftContext& context) override {
    Draft draft = Draft::root(context.committed.back());
    spoil_(draft, context);
    return draft;
  }

 private:
  Spoil spoil_;
};

class FaultyExpansion final : public DistributionDrafter {
 public:
  explicit FaultyExpansion(Tensor logits) : logits_(std::move(logits)) {}
  std::optional<DraftRoom> begin_draft(const DraftContext&) override { return DraftRoom{}; }
  Tensor expand(const Draft&, std::span<const int64_t>) override { return logits_; }

 private:
  Tensor logits_;
};

CertifyResult certify_fault(const std::function<std::unique_ptr<Drafter>()>& make) {
  const Components all = builtin_components();
  Components components;
  components.caches = all.caches;
  components.strategies.add("speculative", all.strategies.entries().at("speculative"));
  components.verifiers.add("rejection", all.verifiers.entries().at("rejection"));
  components.draft_lengths.add("fixed", all.draft_lengths.entries().at("fixed"));
  components.drafters.add("faulty", {.help = "",
                                     .promise = Promise::kLossless,
                                     .prepare = [make](const ConfigNode&, const RunPlan&) {
                                       return [make](BuildContext&) { return make(); };
                                     }});
  std::ostringstream log;
  return certify(components, {.names = {"faulty"}, .seeds = 1, .quiet = true}, log);
}

/// The reason of the sampled row that is broken; it names the drafter.
std::string fault_of(const std::function<std::unique_ptr<Drafter>()>& make) {
  for (const CertifyRow& row : certify_fault(make).rows) {
    if (!row.greedy && row.finding == Finding::kBroken) {
      EXPECT_EQ(row.cell.drafter.type, "faulty");
      return row.reason;
    }
  }
  return "none is broken";
}

std::string fault_of_draft(const FaultyDrafter::Spoil& spoil) {
  return fault_of([spoil] { return std::make_unique<FaultyDrafter>(spoil); });
}

std::string fault_of_logits(const Tensor& logits) {
  return fault_of([logits] { return std::make_unique<FaultyExpansion>(logits); });
}

/// Token 0, said to be drawn from a distribution.
FaultyDrafter::Spoil drawn_from(const std::vector<double>& row) {
  return [row](Draft& draft, const DraftContext&) {
    draft.add(0, 0);
    draft.probs = {TokenProbs(row)};
    draft.child_probs[0] = 0;
  };
}

TEST(CertifyFaultsTest, DraftsThatAreNoneAreNamed) {
  EXPECT_THAT(fault_of_draft(drawn_from({1.0, 0.5, 0.5})),
              HasSubstr("distribution 0 of a draft sums to 2"));
  EXPECT_THAT(fault_of_draft(drawn_from({std::nan(""), 0.5, 0.5})), HasSubstr("sums to nan"));
  EXPECT_THAT(fault_of_draft(drawn_from({0.5, 0.5})), HasSubstr("is over 2 tokens"));
  EXPECT_THAT(fault_of_draft([](Draft& draft, const DraftContext&) { draft.add(kFaultVocab, 0); }),
              HasSubstr("the drafter: node 1 of a draft is token 3, and the vocabulary has 3"));
  EXPECT_THAT(fault_of_draft([](Draft& draft, const DraftContext&) {
                draft.add(0, 0);
                draft.parents[1] = 1;
              }),
              HasSubstr("node 1 of a draft has parent 1"));
  EXPECT_THAT(fault_of_draft([](Draft& draft, const DraftContext&) {
                for (int64_t node = 0; node < 10000; ++node) {
                  draft.add(0, node);
                }
              }),
              HasSubstr("proposed 10000 tokens where 1 fit"));
}

TEST(CertifyFaultsTest, WhatExpandReturnsIsChecked) {
  EXPECT_THAT(fault_of_logits(Tensor()), HasSubstr("expand returned an undefined tensor"));
  EXPECT_THAT(fault_of_logits(at::zeros({kFaultVocab})),
              HasSubstr("expand returned logits [3] where [1, 3] were asked for"));
  EXPECT_THAT(fault_of_logits(at::zeros({1, kFaultVocab + 1})),
              HasSubstr("expand returned logits [1, 4] where [1, 3] were asked for"));
  EXPECT_THAT(fault_of_logits(at::full({1, kFaultVocab}, std::nan(""), at::kDouble)),
              AllOf(HasSubstr("the drafter after 7 tokens"), HasSubstr("NaN")));
}

TEST(CertifyFaultsTest, ExceptionsOfAnyTypeBreakThePromise) {
  EXPECT_THAT(fault_of_draft([](Draft&, const DraftContext&) {
                throw std::runtime_error("the disk is full");
              }),
              HasSubstr("the disk is full"));
  EXPECT_THAT(fault_of_draft([](Draft&, const DraftContext&) { throw 7; }),
              HasSubstr("no std::exception"));
}

TEST(CertifyFaultsTest, StateThatAResetKeepsIsNotRepeatable) {
  const auto reason = fault_of_draft([calls = 0](Draft& draft, const DraftContext&) mutable {
    draft.add(calls++ % kFaultVocab, 0);
  });
  EXPECT_THAT(reason, AllOf(HasSubstr("not repeatable"), HasSubstr("a clock"),
                            HasSubstr("from one request to the next")));
}

TEST(CertifyFaultsTest, AnExampleThatIsNoYamlIsNamed) {
  Components components = builtin_components();
  auto entry = components.strategies.entries().at("speculative");
  entry.examples = {{"{type: other, <drafter>, verifier: <verifier>, <shape>}"}};
  components.strategies.add("other", entry);
  EXPECT_THAT(error_message<ConfigError>([&] { certify_cells(components); }),
              AllOf(HasSubstr("{type: other, {type:"), HasSubstr("(drafter: <drafter>)")));
}

TEST(CertifyFaultsTest, AnExampleThatIsNoMapIsNamed) {
  Components components = builtin_components();
  auto entry = components.drafters.entries().at("prompt_lookup");
  entry.examples = {{"prompt_lookup"}};
  components.drafters.add("other", entry);
  EXPECT_THAT(error_message<ConfigError>([&] { certify_cells(components); }),
              HasSubstr("example prompt_lookup is no YAML map"));
}

}  // namespace
}  // namespace specdec
