#pragma once
#include <memory>

#include "experiments/components/components.h"
#include "tests/support/broken_components.h"

namespace specdec {

/// What registers a verifier with this bug.
inline VerifierRegistry::Entry planted_verifier(Bug bug, Promise promise = Promise::kLossless) {
  return {
      .help = "planted", .promise = promise, .prepare = [bug](const ConfigNode&, const RunPlan&) {
        return [bug](BuildContext&) { return std::make_unique<BuggyVerifier>(bug); };
      }};
}

}  // namespace specdec
