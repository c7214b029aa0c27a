#include "experiments/metrics/record_json.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "experiments/metrics/cache_records.h"
#include "experiments/metrics/load_records.h"
#include "experiments/metrics/metrics.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

constexpr StopReason kStopReasons[] = {StopReason::kEndOfSequence, StopReason::kStopId,
                                       StopReason::kStopString,    StopReason::kGrammarEnd,
                                       StopReason::kMaxNewTokens,  StopReason::kContextFull,
                                       StopReason::kGrammarLimit,  StopReason::kNoneAccepted};

StopReason parse_stop_reason(const std::string& name) {
  for (const StopReason reason : kStopReasons) {
    if (stop_reason_name(reason) == name) {
      return reason;
    }
  }
  throw Error("unknown stop_reason '" + name + "'");
}

Json key_json(const GenerationKey& key) {
  return {{"sweep_point", key.sweep_point},
          {"strategy", key.strategy},
          {"prompt", key.prompt_id},
          {"repeat", key.repeat}};
}

/// JSON has no infinity; the gap of a token that had no rival is null.
Json gaps_json(const std::vector<double>& gaps) {
  Json json = Json::array();
  for (const double gap : gaps) {
    json.push_back(std::isfinite(gap) ? Json(gap) : Json());
  }
  return json;
}

std::vector<double> parse_gaps(const Json& json) {
  std::vector<double> gaps;
  for (const Json& gap : json) {
    gaps.push_back(gap.is_null() ? std::numeric_limits<double>::infinity() : gap.get<double>());
  }
  return gaps;
}

/// Drafted and accepted tokens by Freedom: [[1, 0], [5, 4], [2, 2]].
Json freedom_json(const std::array<DraftCounts, 3>& by_freedom) {
  Json json = Json::array();
  for (const DraftCounts& counts : by_freedom) {
    json.push_back(Json::array({counts.drafted, counts.accepted}));
  }
  return json;
}

std::array<DraftCounts, 3> parse_freedom(const Json& line) {
  std::array<DraftCounts, 3> by_freedom;
  const auto entry = line.find("by_freedom");
  for (size_t i = 0; entry != line.end() && i < by_freedom.size(); ++i) {
    const Json& counts = entry->at(i);
    by_freedom[i] = {counts.at(0).get<int64_t>(), counts.at(1).get<int64_t>()};
  }
  return by_freedom;
}

double checked_seconds(double seconds) {
  SPECDEC_CHECK(std::isfinite(seconds), "a time is {}", seconds);
  return seconds;
}

std::string repaired(const std::string& text) {
  const auto quoted = json_text(Json(text));
  return Json::parse(quoted).get<std::string>();
}

Json bias_json(const BiasSums& bias) {
  return {{"tokens", bias.tokens},
          {"taken", bias.taken},
          {"expected", bias.expected},
          {"variance", bias.variance},
          {"squares", bias.squares}};
}

BiasSums parse_bias(const Json& json) {
  return {.tokens = json.at("tokens").get<int64_t>(),
          .taken = json.at("taken").get<int64_t>(),
          .expected = json.at("expected").get<double>(),
          .variance = json.at("variance").get<double>(),
          .squares = json.at("squares").get<double>()};
}

constexpr std::pair<const char*, std::optional<double> GenerationRecord::*> kMeasuredNumbers[] = {
    {"log_prob", &GenerationRecord::log_prob},
    {"bytes_per_step", &GenerationRecord::bytes_per_step},
    {"cache_bytes", &GenerationRecord::cache_bytes},
    {"cache_pages", &GenerationRecord::cache_pages},
    {"cache_shared_pages", &GenerationRecord::cache_shared_pages},
    {"cache_free_pages", &GenerationRecord::cache_free_pages},
    {"cache_fragmentation", &GenerationRecord::cache_fragmentation},
    {"disk_bytes", &GenerationRecord::disk_bytes},
    {"disk_layers", &GenerationRecord::disk_layers},
    {"disk_layers_ready", &GenerationRecord::disk_layers_ready},
    {"disk_wait_seconds", &GenerationRecord::disk_wait_seconds},
    {"copied_share", &GenerationRecord::copied_share}};

}  // namespace

GenerationKey parse_key(const Json& line) {
  return {.sweep_point = line.at("sweep_point").get<std::string>(),
          .strategy = line.at("strategy").get<std::string>(),
          .prompt_id = line.at("prompt").get<std::string>(),
          .repeat = line.at("repeat").get<int64_t>()};
}

Json step_json(const GenerationKey& key, size_t index, const StepStatistics& step) {
  Json json = key_json(key);
  json["step"] = index;
  json["drafted"] = step.drafted;
  json["accepted"] = step.accepted;
  json["committed"] = step.committed;
  json["depth"] = step.depth;
  json["draft_seconds"] = checked_seconds(step.draft_seconds);
  json["verify_seconds"] = checked_seconds(step.verify_seconds);
  json["other_seconds"] = checked_seconds(step.other_seconds);
  if (step.prompt_draft_seconds > 0.0) {
    json["prompt_draft_seconds"] = checked_seconds(step.prompt_draft_seconds);
  }
  if (!step.overlaps.empty()) {
    json["overlaps"] = step.overlaps;
  }
  if (!step.rejected.empty()) {
    json["rejected"] = step.rejected;
  }
  if (step.mask_seconds > 0.0) {
    json["by_freedom"] = freedom_json(step.by_freedom);
    json["mask_seconds"] = checked_seconds(step.mask_seconds);
  }
  if (step.read_backs.count > 0) {
    json["read_backs"] = step.read_backs.count;
    json["read_back_bytes"] = step.read_backs.bytes;
  }
  if (step.draft_read_backs.count > 0) {
    json["draft_read_backs"] = step.draft_read_backs.count;
    json["draft_read_back_bytes"] = step.draft_read_backs.bytes;
  }
  return json;
}

StepStatistics parse_step(const Json& line) {
  return {.drafted = line.at("drafted").get<int64_t>(),
          .accepted = line.at("accepted").get<int64_t>(),
          .committed = line.at("committed").get<int64_t>(),
          .depth = line.at("depth").get<int64_t>(),
          .draft_seconds = line.at("draft_seconds").get<double>(),
          .prompt_draft_seconds = line.value("prompt_draft_seconds", 0.0),
          .verify_seconds = line.at("verify_seconds").get<double>(),
          .other_seconds = line.at("other_seconds").get<double>(),
          .overlaps = line.value("overlaps", std::vector<double>()),
          .rejected = line.value("rejected", std::vector<std::vector<Token>>()),
          .by_freedom = parse_freedom(line),
          .mask_seconds = line.value("mask_seconds", 0.0),
          .read_backs = {line.value("read_backs", int64_t{0}),
                         line.value("read_back_bytes", int64_t{0})},
          .draft_read_backs = {line.value("draft_read_backs", int64_t{0}),
                               line.value("draft_read_back_bytes", int64_t{0})}};
}

Json record_json(const GenerationRecord& record) {
  const Generation& generation = record.generation;
  Json json = key_json(record.key);
  json["question"] = record.question_id;
  json["turn"] = record.turn;
  json["category"] = record.category;
  json["prompt_tokens"] = record.prompt_tokens;
  json["stop_reason"] = stop_reason_name(generation.stop_reason);
  json["prefill_seconds"] = checked_seconds(generation.prefill_seconds);
  json["decode_seconds"] = checked_seconds(generation.decode_seconds);
  json["steps"] = generation.steps.size();
  json["tokens"] = generation.tokens;
  json["gaps"] = gaps_json(generation.gaps);
  if (is_constrained(generation)) {
    json["log_allowed"] = generation.log_allowed;
    json["log_probs"] = generation.log_probs;
    json["mask_fallbacks"] = generation.mask_fallbacks;
    json["samples"] = generation.samples;
    json["compile_seconds"] = checked_seconds(record.compile_seconds);
  }
  json["text"] = repaired(record.text);
  json["text_tokens"] = record.text_tokens;
  if (record.is_right) {
    json["right"] = *record.is_right;
  }
  if (record.is_valid) {
    json["valid"] = *record.is_valid;
  }
  if (!record.scorer.empty()) {
    json["scorer"] = record.scorer;
  }
  if (record.bias) {
    json["bias"] = bias_json(*record.bias);
  }
  for (const auto& [key, number] : kMeasuredNumbers) {
    if (record.*number) {
      json[key] = *(record.*number);
    }
  }
  if (record.cache_tiers) {
    json["cache_tiers"] = cache_tiers_json(*record.cache_tiers);
  }
  if (record.cache_trace) {
    json["cache_trace"] = cache_trace_json(*record.cache_trace);
  }
  if (record.thinking) {
    json["thinking"] = {record.thinking->begin, record.thinking->end};
  }
  if (record.load) {
    json["load"] = load_json(*record.load);
  }
  return json;
}

GenerationRecord parse_record(const Json& line) {
  GenerationRecord record;
  record.key = parse_key(line);
  record.category = line.at("category").get<std::string>();
  record.prompt_tokens = line.at("prompt_tokens").get<int64_t>();
  record.text = line.at("text").get<std::string>();
  // Runs of version 0.1.0 have none of these.
  record.question_id = line.value("question", record.key.prompt_id);
  record.turn = line.value("turn", int64_t{0});
  record.text_tokens = line.value("text_tokens", int64_t{-1});
  Generation& generation = record.generation;
  generation.stop_reason = parse_stop_reason(line.at("stop_reason").get<std::string>());
  generation.prefill_seconds = line.at("prefill_seconds").get<double>();
  generation.decode_seconds = line.at("decode_seconds").get<double>();
  generation.tokens = line.at("tokens").get<std::vector<Token>>();
  generation.gaps = parse_gaps(line.at("gaps"));
  generation.log_allowed = line.value("log_allowed", std::vector<double>());
  generation.log_probs = line.value("log_probs", std::vector<double>());
  generation.mask_fallbacks = line.value("mask_fallbacks", int64_t{0});
  generation.samples = line.value("samples", int64_t{1});
  record.compile_seconds = line.value("compile_seconds", 0.0);
  record.load = parse_load(line);
  if (line.contains("right")) {
    record.is_right = line.at("right").get<bool>();
  }
  if (line.contains("valid")) {
    record.is_valid = line.at("valid").get<bool>();
  }
  record.scorer = line.value("scorer", std::string());
  for (const auto& [key, number] : kMeasuredNumbers) {
    if (line.contains(key)) {
      record.*number = line.at(key).get<double>();
    }
  }
  if (line.contains("cache_tiers")) {
    record.cache_tiers = parse_cache_tiers(line.at("cache_tiers"));
  }
  if (line.contains("cache_trace")) {
    record.cache_trace = parse_cache_trace(line.at("cache_trace"));
  }
  if (line.contains("thinking")) {
    const auto& span = line.at("thinking");
    record.thinking = ThinkingSpan{span.at(0).get<int64_t>(), span.at(1).get<int64_t>()};
  }
  if (line.contains("bias")) {
    record.bias = parse_bias(line.at("bias"));
  }
  return record;
}

}  // namespace specdec
