#include "experiments/metrics/trace_records.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/metrics/jsonl.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

double nine_digits(double value) {
  return std::strtod(fmt::format("{:.9g}", value).c_str(), nullptr);
}

Json position_json(const TracePosition& position, bool drawn) {
  Json ranks = Json::array();
  Json p = Json::array();
  Json q = Json::array();
  Json overlaps = Json::array();
  for (const TraceDepth& depth : position.depths) {
    ranks.push_back(depth.rank);
    p.push_back(nine_digits(depth.p));
    q.push_back(nine_digits(depth.q));
    overlaps.push_back(nine_digits(depth.overlap));
  }
  Json json = {{"drafted", position.drafted}, {"rank", std::move(ranks)}, {"p", std::move(p)}};
  if (drawn) {
    json["q"] = std::move(q);
  }
  json["overlap"] = std::move(overlaps);
  return json;
}

double probability(const nlohmann::json& json, const char* key, size_t i) {
  const auto value = json.at(key).at(i).get<double>();
  if (!(value >= 0.0 && value <= 1.0 + 1e-6)) {
    throw Error(fmt::format("'{}' holds {}, which is no probability", key, value));
  }
  return value;
}

TracePosition parse_position(const nlohmann::json& json, bool drawn) {
  TracePosition position{.drafted = json.at("drafted").get<int64_t>()};
  const auto ranks = json.at("rank").get<std::vector<int64_t>>();
  if (position.drafted < 0 || static_cast<int64_t>(ranks.size()) > position.drafted) {
    throw Error(fmt::format("'rank' has {} entries for a draft of {} tokens", ranks.size(),
                            position.drafted));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    position.depths.push_back({.rank = ranks[i],
                               .p = probability(json, "p", i),
                               .q = drawn ? probability(json, "q", i) : 0.0,
                               .overlap = probability(json, "overlap", i)});
  }
  return position;
}

TraceRecord parse_trace(const nlohmann::json& json) {
  TraceRecord record;
  record.key = {.sweep_point = json.at("sweep_point").get<std::string>(),
                .strategy = json.at("strategy").get<std::string>(),
                .prompt_id = json.at("prompt").get<std::string>(),
                .repeat = json.at("repeat").get<int64_t>()};
  record.category = json.at("category").get<std::string>();
  record.verifier = json.at("verifier").get<std::string>();
  record.prompt_tokens = json.at("prompt_tokens").get<int64_t>();
  record.trace.drawn = json.at("drawn").get<bool>();
  record.trace.depth = json.at("depth").get<int64_t>();
  record.trace.width = json.at("width").get<int64_t>();
  for (const auto& position : json.at("positions")) {
    record.trace.positions.push_back(parse_position(position, record.trace.drawn));
  }
  return record;
}

}  // namespace

std::string write_trace_line(const TraceRecord& record) {
  Json positions = Json::array();
  for (const TracePosition& position : record.trace.positions) {
    positions.push_back(position_json(position, record.trace.drawn));
  }
  const Json json = {{"sweep_point", record.key.sweep_point}, {"strategy", record.key.strategy},
                     {"prompt", record.key.prompt_id},        {"repeat", record.key.repeat},
                     {"category", record.category},           {"verifier", record.verifier},
                     {"prompt_tokens", record.prompt_tokens}, {"drawn", record.trace.drawn},
                     {"depth", record.trace.depth},           {"width", record.trace.width},
                     {"positions", std::move(positions)}};
  return json.dump() + "\n";
}

std::vector<TraceRecord> read_traces(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  std::string_view whole = text;
  whole = whole.substr(0, whole.rfind('\n') == std::string_view::npos ? 0 : whole.rfind('\n') + 1);
  std::vector<TraceRecord> records;
  read_json_lines(
      whole, file.string(), "a trace as `specdec run` writes it",
      [&](const nlohmann::json& line, int64_t) { records.push_back(parse_trace(line)); });
  return records;
}

}  // namespace specdec
