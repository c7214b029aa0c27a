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
#include "experiments/components/builtin.h"

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
  if (plan.branches != nullptr && *plan.branches > 1) {
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

/// A probability or threshold that must be above 0.
double read_share(const ConfigNode& node, const std::string& key, double fallback) {
  const auto value = node.get<double>(key, fallback, {0.0, 1.0});
  if (value == 0.0) {
    node.fail(key, "must be above 0");
    return fallback;
  }
  return value;
}

VerifierRegistry::Make prepare_typical(const ConfigNode& node, const RunPlan&) {
  TypicalOptions options;
  options.epsilon = read_share(node, "epsilon", options.epsilon);
  options.delta = read_share(node, "delta", options.delta);
  return [options](BuildContext&) { return std::make_unique<TypicalVerifier>(options); };
}

VerifierRegistry::Make prepare_threshold(const ConfigNode& node, const RunPlan&) {
  ThresholdOptions options;
  options.single = read_share(node, "single", options.single);
  options.acc = read_share(node, "acc", options.acc);
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
  verifiers.add("exact_match",
                {.help = "keeps drafted tokens that equal the target's best (greedy only)",
                 .promise = Promise::kLossless,
                 .prepare = prepare_exact_match});
  verifiers.add("rejection",
                {.help = "accepts with min(1, p/q), else draws from the residual: the target's "
                         "distribution is kept (Leviathan et al., 2023)",
                 .promise = Promise::kLossless,
                 .prepare = prepare_plain<RejectionVerifier>});
  verifiers.add(
      "block",
      {.help = "verifies a chain as a whole: the target's distribution is kept, and never fewer "
               "tokens are accepted\nthan by rejection (Sun et al., 2025); chains only",
       .promise = Promise::kLossless,
       .prepare = prepare_block});
  verifiers.add(
      "sample_match",
      {.help = "samples the target by position and accepts drafted tokens that match: the "
               "very tokens\nof plain sampling with the same seed",
       .promise = Promise::kLossless,
       .prepare = prepare_plain<SampleMatchVerifier>});
}

void add_lossy(VerifierRegistry& verifiers) {
  verifiers.add("typical",
                {.help = "accepts what the target does not find unlikely, p >= min(epsilon, delta "
                         "exp(-entropy))\n(Medusa: Cai et al., 2024)\nepsilon: 0.09, delta: 0.3",
                 .promise = Promise::kLossy,
                 .prepare = prepare_typical});
  verifiers.add(
      "threshold",
      {.help = "SGLang's acceptance thresholds; the target's distribution only when both are 1\n"
               "single: 1.0 (accepts from this p on), acc: 1.0 (divides p)",
       .promise = Promise::kLossy,
       .prepare = prepare_threshold});
  verifiers.add("synthetic",
                {.help = "accepts with given probabilities, ignoring the target: measures the cost "
                         "of speculation itself\nacceptance: 0.7, or a list by depth, the last "
                         "for all deeper tokens (of a token, once those\nbefore it are accepted)",
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
