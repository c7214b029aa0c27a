#pragma once
#include <cstddef>
#include <map>
#include <string>

#include "experiments/metrics/generation_record.h"

namespace specdec {

/// Which generations of a run become example texts: the first question of up to three categories,
/// first repeat, of every strategy at its first point of the sweep. Asked in the order of the run.
class ExampleChoice {
 public:
  bool takes(const GenerationKey& key, const std::string& category);

 private:
  std::map<std::string, std::string> question_by_category_;
  std::map<std::string, std::string> point_by_strategy_;
};

}  // namespace specdec
