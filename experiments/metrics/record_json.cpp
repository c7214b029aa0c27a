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
#include "experiments/metrics/record_keys.h"

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

std::vector<double> parse_gaps(const RecordKeys& line) {
  std::vector<double> gaps;
  for (const auto& gap : line.list("gaps")) {
    if (!gap.is_null() && !gap.is_number()) {
      line.fail("gaps", "must hold numbers, or null where a token had no rival");
    }
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

std::array<DraftCounts, 3> parse_freedom(const RecordKeys& line) {
  constexpr const char* kKey = "by_freedom";
  std::array<DraftCounts, 3> by_freedom;
  if (!line.has(kKey)) {
    return by_freedom;
  }
  const auto lists = line.count_lists(kKey);
  for (size_t i = 0; i < by_freedom.size(); ++i) {
    if (lists.size() != by_freedom.size() || lists[i].size() != 2) {
      line.fail(kKey, "must be three pairs of drafted and accepted tokens");
    }
    by_freedom[i] = {lists[i][0], lists[i][1]};
  }
  return by_freedom;
}

std::vector<std::vector<Token>> parse_rejected(const RecordKeys& line) {
  constexpr const char* kKey = "rejected";
  std::vector<std::vector<Token>> rejected;
  for (const auto& counts :
       line.has(kKey) ? line.count_lists(kKey) : std::vector<std::vector<int64_t>>()) {
    rejected.push_back(token_ids(counts, line, kKey));
  }
  return rejected;
}

double checked_seconds(double seconds) {
  SPECDEC_CHECK(std::isfinite(seconds), "a time is {}", seconds);
  return seconds;
}

int64_t parse_step_tokens(const RecordKeys& line, const char* key) {
  const int64_t tokens = line.count(key);
  if (tokens > kMostStepTokens) {
    line.fail(key, fmt::format("is {}, more tokens than a text has", tokens));
  }
  return tokens;
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

BiasSums parse_bias(const RecordKeys& bias) {
  return {.tokens = bias.count("tokens"),
          .taken = bias.count("taken"),
          .expected = bias.number("expected"),
          .variance = bias.number("variance"),
          .squares = bias.number("squares")};
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

/// What a run measured of a generation beside its tokens.
void parse_measures(const RecordKeys& line, GenerationRecord& record) {
  for (const auto& [key, number] : kMeasuredNumbers) {
    if (line.has(key)) {
      record.*number = line.number(key);
    }
  }
  if (line.has("cache_tiers")) {
    record.cache_tiers = parse_cache_tiers(line.object("cache_tiers"));
  }
  if (line.has("cache_trace")) {
    record.cache_trace = parse_cache_trace(line.object("cache_trace"));
  }
  if (line.has("thinking")) {
    const auto span = line.counts("thinking", 2);
    record.thinking = ThinkingSpan{span[0], span[1]};
  }
  if (line.has("bias")) {
    record.bias = parse_bias(line.object("bias"));
  }
  if (line.has("load")) {
    record.load = parse_load(line.object("load"));
  }
}

Generation parse_tokens(const RecordKeys& line) {
  Generation generation;
  generation.stop_reason = parse_stop_reason(line.text("stop_reason"));
  generation.prefill_seconds = line.amount("prefill_seconds");
  generation.decode_seconds = line.amount("decode_seconds");
  generation.tokens = line.tokens("tokens");
  generation.gaps = parse_gaps(line);
  generation.log_allowed = line.numbers_if_there("log_allowed");
  generation.log_probs = line.numbers_if_there("log_probs");
  generation.mask_fallbacks = line.count("mask_fallbacks", 0);
  generation.samples = line.count("samples", 1);
  return generation;
}

}  // namespace

GenerationKey parse_key(const RecordKeys& line) {
  return {.sweep_point = line.text("sweep_point"),
          .strategy = line.text("strategy"),
          .prompt_id = line.text("prompt"),
          .repeat = line.count("repeat")};
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

StepStatistics parse_step(const RecordKeys& line) {
  StepStatistics step = {
      .drafted = parse_step_tokens(line, "drafted"),
      .accepted = line.count("accepted"),
      .committed = parse_step_tokens(line, "committed"),
      .depth = line.count("depth"),
      .draft_seconds = line.amount("draft_seconds"),
      .prompt_draft_seconds = line.amount("prompt_draft_seconds", 0.0),
      .verify_seconds = line.amount("verify_seconds"),
      .other_seconds = line.amount("other_seconds"),
      .overlaps = line.numbers_if_there("overlaps"),
      .rejected = parse_rejected(line),
      .by_freedom = parse_freedom(line),
      .mask_seconds = line.amount("mask_seconds", 0.0),
      .read_backs = {line.count("read_backs", 0), line.count("read_back_bytes", 0)},
      .draft_read_backs = {line.count("draft_read_backs", 0),
                           line.count("draft_read_back_bytes", 0)}};
  if (const std::string mistake = step_mistake(step); !mistake.empty()) {
    throw Error(mistake);
  }
  return step;
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

/// All but the steps.
GenerationRecord parse_record(const RecordKeys& line) {
  GenerationRecord record;
  record.key = parse_key(line);
  record.category = line.text("category");
  record.prompt_tokens = line.count("prompt_tokens");
  record.text = line.text("text");
  // Runs of version 0.1.0 have none of these.
  record.question_id = line.text("question", record.key.prompt_id);
  record.turn = line.count("turn", 0);
  record.text_tokens =
      line.has("text_tokens") && line.at("text_tokens") != -1 ? line.count("text_tokens") : -1;
  record.generation = parse_tokens(line);
  record.compile_seconds = line.amount("compile_seconds", 0.0);
  if (line.has("right")) {
    record.is_right = line.flag("right");
  }
  if (line.has("valid")) {
    record.is_valid = line.flag("valid");
  }
  record.scorer = line.text("scorer", "");
  parse_measures(line, record);
  return record;
}

}  // namespace specdec
