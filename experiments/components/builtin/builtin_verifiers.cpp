#include <fmt/format.h>

#include <memory>

#include "core/error.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"
#include "decoders/verifiers/synthetic.h"
#include "decoders/verifiers/threshold.h"
#include "decoders/verifiers/typical.h"
#include "experiments/components/builtin/builtin.h"

namespace specdec {
namespace {

VerifierRegistry::Make prepare_exact_match(const ConfigNode& node, const RunPlan& plan) {
  if (!plan.sampling.greedy()) {
    node.fail_at("type", fmt::format("exact_match compares with greedy decoding, but "
                                     "sampling.temperature is {}; use rejection, or temperature 0",
                                     plan.sampling.temperature));
  }
  return [](BuildContext&) { return std::make_unique<ExactMatchVerifier>(); };
}

VerifierRegistry::Make prepare_block(const ConfigNode& node, const RunPlan& plan) {
  if (plan.draft->has_branches()) {
    node.fail_at("type",
                 "block verification takes chains only, and this tree branches; use rejection, or "
                 "draft_length instead of tree");
  }
  return [](BuildContext&) { return std::make_unique<BlockVerifier>(); };
}

/// A verifier without options.
template <class Plain>
VerifierRegistry::Make prepare_plain(const ConfigNode&, const RunPlan&) {
  return [](BuildContext&) { return std::make_unique<Plain>(); };
}

OptionTable<TypicalOptions> typical_options() {
  return OptionTable<TypicalOptions>()
      .add_share("epsilon", &TypicalOptions::epsilon, "a token this likely is always accepted")
      .add_share("delta", &TypicalOptions::delta,
                 "times exp(-entropy in nats): what is accepted where the target is uncertain");
}

VerifierRegistry::Make prepare_typical(const ConfigNode& node, const RunPlan&) {
  const TypicalOptions options = typical_options().read(node);
  return [options](BuildContext&) { return std::make_unique<TypicalVerifier>(options); };
}

OptionTable<ThresholdOptions> threshold_options() {
  return OptionTable<ThresholdOptions>()
      .add_share("single", &ThresholdOptions::single, "a token this likely is always accepted")
      .add_share("acc", &ThresholdOptions::acc,
                 "siblings are accepted with their mass so far divided by it");
}

VerifierRegistry::Make prepare_threshold(const ConfigNode& node, const RunPlan&) {
  const ThresholdOptions options = threshold_options().read(node);
  return [options](BuildContext&) { return std::make_unique<ThresholdVerifier>(options); };
}

VerifierRegistry::Make prepare_synthetic_verifier(const ConfigNode& node, const RunPlan& plan) {
  if (plan.grammar) {
    node.fail_at("type",
                 "synthetic accepts any token, also those that the grammar forbids; use "
                 "another verifier, or leave the grammar out");
  }
  std::vector<double> acceptance;
  if (node.is_list("acceptance")) {
    acceptance = node.get_list<double>("acceptance", {}, {0.0, 1.0});
    if (acceptance.empty()) {
      node.fail("acceptance", "the list is empty; give one probability a depth, or one number");
      acceptance = {0.0};
    }
  } else {
    acceptance = {node.require<double>("acceptance", {0.0, 1.0})};
  }
  return [acceptance](BuildContext&) { return std::make_unique<SyntheticVerifier>(acceptance); };
}

void add_lossless(VerifierRegistry& verifiers) {
  const std::string page = "docs/verifiers.md";
  verifiers.add("exact_match",
                {.help = "accepts drafted tokens that equal the target's best (greedy only)",
                 .page = page,
                 .promise = Promise::kLossless,
                 .prepare = prepare_exact_match});
  verifiers.add("rejection",
                {.help = "accepts with probability min(1, p/q), else draws from the residual",
                 .source = "Leviathan et al., 2023, arXiv:2211.17192",
                 .page = page,
                 .promise = Promise::kLossless,
                 .prepare = prepare_plain<RejectionVerifier>});
  verifiers.add("block", {.help = "verifies a chain as a whole and accepts never fewer tokens than "
                                  "rejection on average; chains only",
                          .source = "Sun et al., 2025, arXiv:2403.10444",
                          .page = page,
                          .promise = Promise::kLossless,
                          .prepare = prepare_block});
  verifiers.add("sample_match",
                {.help = "samples the target by position and accepts drafted tokens that match: "
                         "the very tokens of plain sampling with the same seed",
                 .page = page,
                 .promise = Promise::kLossless,
                 .prepare = prepare_plain<SampleMatchVerifier>});
}

void add_lossy(VerifierRegistry& verifiers) {
  const std::string page = "docs/verifiers.md";
  verifiers.add("typical", {.help = "accepts what the target does not find unlikely, p >= "
                                    "min(epsilon, delta exp(-entropy))",
                            .source = "Medusa: Cai et al., 2024, arXiv:2401.10774",
                            .page = page,
                            .options = typical_options().help(),
                            .promise = Promise::kLossy,
                            .prepare = prepare_typical});
  verifiers.add("threshold", {.help = "acceptance thresholds; the target's distribution only when "
                                      "both are 1",
                              .source = "SGLang",
                              .page = page,
                              .options = threshold_options().help(),
                              .promise = Promise::kLossy,
                              .prepare = prepare_threshold});
  verifiers.add("synthetic",
                {.help = "accepts with given probabilities, ignoring the target: measures the cost "
                         "of speculation itself",
                 .page = page,
                 .options = {{"acceptance", "", "0 to 1, or a list",
                              "probability that a token is accepted once those before it are; a "
                              "list by depth, the last for all deeper tokens"}},
                 .promise = Promise::kLossy,
                 .prepare = prepare_synthetic_verifier,
                 .examples = {{"{type: synthetic, acceptance: [1, 0]}"}}});
}

}  // namespace

void add_verifiers(VerifierRegistry& verifiers) {
  add_lossless(verifiers);
  add_lossy(verifiers);
}

}  // namespace specdec
