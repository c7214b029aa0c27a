#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>

#include "experiments/metrics/generation_record.h"

namespace specdec {

/// Names what a point of the sweep shares with those where plain decoding is the same.
using ConditionOf = std::function<std::string(const std::string& sweep_point)>;

/// For each point of the sweep in the records, where those of the first record's strategy are that
/// others are compared with: the same point, or where the strategy has none there, since its
/// settings were those of an earlier point, the first one of the same condition. A point without
/// any is left out: records of another condition are nothing to compare with. Without
/// `condition_of`, each point is a condition of its own.
std::map<std::string, std::string> reference_points(std::span<const GenerationRecord> records,
                                                    const ConditionOf& condition_of);

}  // namespace specdec
