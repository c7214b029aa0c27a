#include "experiments/metrics/trace_records.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/metrics/jsonl.h"
#include "experiments/metrics/record_keys.h"

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

/// One probability for each rank.
std::vector<double> probabilities(const RecordKeys& keys, const char* key, size_t size) {
  auto values = keys.numbers(key);
  if (values.size() < size) {
    keys.fail(key, fmt::format("has {} entries for {} ranks", values.size(), size));
  }
  for (const double value : values) {
    if (!(value >= 0.0 && value <= 1.0 + 1e-6)) {
      keys.fail(key, fmt::format("holds {}, which is no probability", value));
    }
  }
  return values;
}

/// -1 = the token was not among those that were drafted.
std::vector<int64_t> parse_ranks(const RecordKeys& keys) {
  std::vector<int64_t> ranks;
  for (const double rank : keys.numbers("rank")) {
    if (rank != std::floor(rank) || rank < -1.0 || rank > 1e9) {
      keys.fail("rank", fmt::format("holds {}, which is no rank", rank));
    }
    ranks.push_back(static_cast<int64_t>(rank));
  }
  return ranks;
}

TracePosition parse_position(const RecordKeys& keys, bool drawn) {
  TracePosition position{.drafted = keys.count("drafted")};
  const auto ranks = parse_ranks(keys);
  if (std::ssize(ranks) > position.drafted) {
    throw Error(fmt::format("'rank' has {} entries for a draft of {} tokens", ranks.size(),
                            position.drafted));
  }
  const auto p = probabilities(keys, "p", ranks.size());
  const auto q = drawn ? probabilities(keys, "q", ranks.size()) : std::vector<double>(ranks.size());
  const auto overlaps = probabilities(keys, "overlap", ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    position.depths.push_back({.rank = ranks[i], .p = p[i], .q = q[i], .overlap = overlaps[i]});
  }
  return position;
}

TraceRecord parse_trace(const RecordKeys& line) {
  TraceRecord record;
  record.key = {.sweep_point = line.text("sweep_point"),
                .strategy = line.text("strategy"),
                .prompt_id = line.text("prompt"),
                .repeat = line.count("repeat")};
  record.category = line.text("category");
  record.verifier = line.text("verifier");
  record.prompt_tokens = line.count("prompt_tokens");
  record.trace.drawn = line.flag("drawn");
  record.trace.depth = line.count("depth");
  record.trace.width = line.count("width");
  for (const RecordKeys& position : line.objects("positions")) {
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
  read_json_lines(whole, file.string(), "a trace as `specdec run` writes it",
                  [&](const nlohmann::json& line, int64_t) {
                    records.push_back(parse_trace(RecordKeys(line)));
                  });
  return records;
}

}  // namespace specdec
