#include "experiments/metrics/load_records.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "core/error.h"

namespace specdec {

using Json = nlohmann::ordered_json;

Json load_json(const MachineLoad& load) {
  SPECDEC_CHECK(std::isfinite(load.seconds), "a time is {}", load.seconds);
  Json json = {{"seconds", load.seconds}};
  const auto add = [&](const char* key, const auto& value) {
    if (value) {
      json[key] = *value;
    }
  };
  add("average", load.average);
  add("stolen_seconds", load.stolen_seconds);
  add("others_seconds", load.others_seconds);
  add("waited_seconds", load.waited_seconds);
  add("preemptions", load.preemptions);
  add("back_offs", load.back_offs);
  return json;
}

MachineLoad parse_load(const RecordKeys& keys) {
  MachineLoad load{.seconds = keys.amount("seconds")};
  const auto read = [&](const char* key, auto& value) {
    if (!keys.has(key)) {
      return;
    }
    if constexpr (std::is_same_v<decltype(value), std::optional<double>&>) {
      value = keys.number(key);
    } else {
      value = keys.count(key);
    }
  };
  read("average", load.average);
  read("stolen_seconds", load.stolen_seconds);
  read("others_seconds", load.others_seconds);
  read("waited_seconds", load.waited_seconds);
  read("preemptions", load.preemptions);
  read("back_offs", load.back_offs);
  return load;
}

}  // namespace specdec
