#pragma once
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "decoders/decoding_strategy.h"
#include "tests/support/fake_model.h"

namespace specdec {

/// A strategy that promises to be lossless.
struct StrategyRow {
  std::string name;
  bool samples;  ///< also when it samples
  /// A strategy for a target, with a table for what drafts.
  std::function<std::unique_ptr<DecodingStrategy>(LanguageModel& target, const LogitTable& table)>
      make;
};

inline void PrintTo(const StrategyRow& one, std::ostream* out) { *out << one.name; }

/// Every drafter with every verifier and shape that takes it.
std::vector<StrategyRow> promise_rows();

}  // namespace specdec
