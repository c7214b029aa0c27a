#include "experiments/metrics/load_records.h"

#include <cmath>
#include <nlohmann/json.hpp>
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

std::optional<MachineLoad> parse_load(const Json& line) {
  const auto entry = line.find("load");
  if (entry == line.end()) {
    return std::nullopt;
  }
  MachineLoad load{.seconds = entry->at("seconds").get<double>()};
  const auto read = [&](const char* key, auto& value) {
    if (entry->contains(key)) {
      value = entry->at(key).template get<typename std::decay_t<decltype(value)>::value_type>();
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
