#include "experiments/metrics/reference_points.h"

#include <set>

namespace specdec {

std::map<std::string, std::string> reference_points(std::span<const GenerationRecord> records,
                                                    const ConditionOf& condition_of) {
  const auto condition = [&](const std::string& point) {
    return condition_of ? condition_of(point) : point;
  };
  std::set<std::string> own;                          // points where the first strategy was run
  std::map<std::string, std::string> first_of_those;  // by condition
  for (const GenerationRecord& record : records) {
    if (record.key.strategy == records.front().key.strategy &&
        own.insert(record.key.sweep_point).second) {
      first_of_those.try_emplace(condition(record.key.sweep_point), record.key.sweep_point);
    }
  }
  std::map<std::string, std::string> references;
  for (const GenerationRecord& record : records) {
    const std::string& point = record.key.sweep_point;
    if (own.contains(point)) {
      references.try_emplace(point, point);
    } else if (!references.contains(point)) {
      const auto alike = first_of_those.find(condition(point));
      if (alike != first_of_those.end()) {
        references.emplace(point, alike->second);
      }
    }
  }
  return references;
}

}  // namespace specdec
