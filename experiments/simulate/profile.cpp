#include "experiments/simulate/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/json_text.h"
#include "core/formats/strict_json.h"
#include "core/randomness.h"
#include "decoders/analysis/quantile.h"
#include "experiments/metrics/record_keys.h"
#include "experiments/report/report_text.h"
#include "experiments/simulate/layer_table.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "specdec profile 1";
constexpr uint32_t kMaxGenerations = 65;
constexpr uint32_t kHopefulGenerations = 5;  ///< without a step of the length

Json spread_json(const Spread& spread) { return {spread.low, spread.median, spread.high}; }

Spread parse_spread(const RecordKeys& keys, const char* key) {
  const auto times = keys.numbers(key);
  if (times.size() != 3 || !(0.0 <= times[0] && times[0] <= times[1] && times[1] <= times[2])) {
    keys.fail(key, "must be [lower quartile, median, upper quartile] in seconds");
  }
  return {.median = times[1], .low = times[0], .high = times[2]};
}

Json cost_json(const DraftCost& cost) {
  return {{"drafted", cost.drafted},
          {"steps", cost.steps},
          {"draft_seconds", spread_json(cost.draft)},
          {"verify_seconds", spread_json(cost.verify)},
          {"other_seconds", spread_json(cost.other)}};
}

DraftCost parse_cost(const RecordKeys& keys) {
  return {.drafted = keys.count("drafted"),
          .steps = keys.count("steps"),
          .draft = parse_spread(keys, "draft_seconds"),
          .verify = parse_spread(keys, "verify_seconds"),
          .other = parse_spread(keys, "other_seconds")};
}

CostPoint parse_point(const RecordKeys& keys) {
  const auto seconds = parse_spread(keys, "seconds");
  const CostPoint point{.new_tokens = keys.count("new_tokens"),
                        .context = keys.count("context"),
                        .seconds = seconds.median,
                        .low = seconds.low,
                        .high = seconds.high};
  if (point.new_tokens < 1 || !(point.seconds > 0.0)) {
    throw Error("a point of 'target' has no new tokens or takes no time");
  }
  return point;
}

ForwardReads parse_reads(const RecordKeys& keys) {
  ForwardReads reads{.weights = keys.count("weight_bytes"), .cache = {}};
  for (const RecordKeys& entry : keys.objects("cache")) {
    reads.cache[entry.count("context")] = entry.count("bytes");
  }
  return reads;
}

Profile parse_profile(const RecordKeys& keys) {
  if (keys.at("format") != kFormat) {
    throw Error(
        fmt::format("its format is {}, not \"{}\"", describe_json(keys.at("format")), kFormat));
  }
  Profile profile{.model = keys.text("model"),
                  .machine = keys.text("machine"),
                  .target = {},
                  .temperature = keys.amount("temperature", 0.0),
                  .plain = parse_cost(keys.object("plain")),
                  .drafters = {}};
  for (const RecordKeys& point : keys.objects("target")) {
    profile.target.points.push_back(parse_point(point));
  }
  if (profile.target.points.empty()) {
    throw Error("'target' is empty");
  }
  for (const RecordKeys& drafter : keys.objects("drafters")) {
    profile.drafters.push_back({.name = drafter.text("name"),
                                .description = drafter.text("drafter"),
                                .lengths = {},
                                .prompt_token = drafter.amount("prompt_token_seconds", 0.0)});
    for (const RecordKeys& cost : drafter.objects("lengths")) {
      profile.drafters.back().lengths.push_back(parse_cost(cost));
    }
  }
  if (keys.has("reads")) {
    profile.reads = parse_reads(keys.object("reads"));
  }
  if (keys.has("experts")) {
    profile.experts = parse_experts(keys.object("experts"));
  }
  return profile;
}

/// "0.252 (0.141 to 0.290)"; of few measurements the median alone.
std::string milliseconds(const Spread& spread, int64_t measurements) {
  return measurements < static_cast<int64_t>(kMinQuartileValues)
             ? fmt::format("{:.3f}", 1e3 * spread.median)
             : fmt::format("{:.3f} ({:.3f} to {:.3f})", 1e3 * spread.median, 1e3 * spread.low,
                           1e3 * spread.high);
}

void print_curve(std::ostream& out, const CostCurve& curve, int64_t repeats) {
  std::set<int64_t> contexts;
  std::set<int64_t> widths;
  for (const CostPoint& point : curve.points) {
    contexts.insert(point.context);
    widths.insert(point.new_tokens);
  }
  out << "v(n): milliseconds of one forward of n new tokens, median (quartiles), and its cost in "
         "forwards of "
      << *widths.begin() << "\n";
  std::vector<Cells> rows = {{"new tokens"}};
  for (const int64_t context : contexts) {
    rows[0].push_back(fmt::format("context {}", context));
  }
  for (const int64_t width : widths) {
    rows.push_back({fmt::format("{}", width)});
    for (const int64_t context : contexts) {
      const auto find = [&](int64_t new_tokens) {
        return std::find_if(curve.points.begin(), curve.points.end(), [&](const CostPoint& point) {
          return point.new_tokens == new_tokens && point.context == context;
        });
      };
      const auto point = find(width);
      const auto base = find(*widths.begin());
      rows.back().push_back(
          point == curve.points.end()
              ? "-"
              : fmt::format("{}  {:.2f}",
                            milliseconds({point->seconds, point->low, point->high}, repeats),
                            base == curve.points.end() ? 1.0 : point->seconds / base->seconds));
    }
  }
  write_aligned(out, rows, 0);
}

/// What a forward of one token reads in a second, by context.
void print_reads(std::ostream& out, const Profile& profile) {
  for (const CostPoint& point : profile.target.points) {
    const auto cache = profile.reads.cache.find(point.context);
    if (point.new_tokens != 1 || cache == profile.reads.cache.end()) {
      continue;
    }
    const auto bytes = static_cast<double>(profile.reads.weights + cache->second);
    out << fmt::format(
        "a forward of 1 after {}: {:.1f} MB of weights and {:.1f} MB of keys and "
        "values, {:.1f} GB/s\n",
        point.context, 1e-6 * static_cast<double>(profile.reads.weights),
        1e-6 * static_cast<double>(cache->second), 1e-9 * bytes / point.seconds);
  }
}

Json reads_json(const ForwardReads& reads) {
  Json cache = Json::array();
  for (const auto& [context, bytes] : reads.cache) {
    cache.push_back({{"context", context}, {"bytes", bytes}});
  }
  return {{"weight_bytes", reads.weights}, {"cache", std::move(cache)}};
}

}  // namespace

ForwardReads forward_reads(const TransformerModel& model, const CostCurve& curve) {
  ForwardReads reads{.weights = forward_bytes(model.weights()), .cache = {}};
  const KvStatistics statistics = model.cache().statistics();
  const std::vector<LayerPlan>& plan = model.weights().plan;
  for (const CostPoint& point : curve.points) {
    int64_t& bytes = reads.cache[point.context];
    bytes = 0;
    for (const LayerPlan& layer : plan) {
      const auto& own = layer.kv_source < 0 ? layer : plan[static_cast<size_t>(layer.kv_source)];
      const auto at = static_cast<size_t>(&own - plan.data());
      const int64_t seen = layer.window > 0 ? std::min(layer.window, point.context) : point.context;
      bytes += seen * statistics.layers[at].page_bytes / statistics.page_size;
    }
  }
  return reads;
}

Spread spread_of(std::vector<double> seconds) {
  SPECDEC_CHECK(!seconds.empty(), "the spread of nothing");
  std::sort(seconds.begin(), seconds.end());
  return {.median = quantile(seconds, 0.5),
          .low = quantile(seconds, 0.25),
          .high = quantile(seconds, 0.75)};
}

StepTimer::StepTimer(DecodingStrategy& strategy, std::vector<Token> prompt, int64_t length,
                     SamplingParams sampling)
    : strategy_(strategy),
      prompt_(std::move(prompt)),
      length_(length),
      sampling_(std::move(sampling)) {}

void StepTimer::generate() {
  CounterRandomness random(0, 0, generations_);
  const Generation generation =
      strategy_.generate({.prompt = prompt_,
                          .sampling = sampling_,
                          .stop = {.max_new_tokens = 4 * (length_ + 1) + 32},
                          .random = random,
                          .on_tokens = [](TokenSpan) { InterruptGuard::check(); }});
  if (generations_++ == 0) {
    return;
  }
  for (const StepStatistics& step : generation.steps) {
    if (step.depth == length_) {
      const bool reads_prompt = &step == &generation.steps.front();
      (reads_prompt ? first_ : draft_).push_back(step.draft_seconds);
      verify_.push_back(step.verify_seconds);
      other_.push_back(step.other_seconds);
    }
  }
}

bool StepTimer::wants_more(int64_t steps) const {
  const uint32_t limit = verify_.empty() ? kHopefulGenerations : kMaxGenerations;
  return static_cast<int64_t>(verify_.size()) < steps && generations_ < limit;
}

std::optional<DraftCost> StepTimer::cost() const {
  if (verify_.empty()) {
    return std::nullopt;
  }
  return DraftCost{.drafted = length_,
                   .steps = static_cast<int64_t>(verify_.size()),
                   .draft = spread_of(draft_.empty() ? first_ : draft_),
                   .verify = spread_of(verify_),
                   .other = spread_of(other_),
                   .first = first_.empty() || draft_.empty() ? 0.0 : spread_of(first_).median};
}

void time_in_turns(std::span<StepTimer> timers, int64_t steps) {
  while (std::any_of(timers.begin(), timers.end(),
                     [&](const StepTimer& timer) { return timer.wants_more(steps); })) {
    for (StepTimer& timer : timers) {
      timer.generate();
    }
  }
}

void print_profile(std::ostream& out, const Profile& profile) {
  print_curve(out, profile.target, profile.repeats);
  print_reads(out, profile);
  if (profile.experts) {
    print_experts(out, *profile.experts);
  }
  if (profile.layers) {
    print_layers(out, *profile.layers);
  }
  if (profile.drafters.empty()) {
    return;
  }
  const double forward = profile.plain.verify.median;
  const int64_t plain_steps = profile.plain.steps;
  out << fmt::format(
      "\nsteps at temperature {}: milliseconds of their parts, median (quartiles); c = the draft's "
      "cost per token in plain forwards\n",
      profile.temperature);
  std::vector<Cells> rows = {{"drafter", "drafted", "draft", "verify", "other", "c"}};
  rows.push_back({"(plain decoding)", "0", "-", milliseconds(profile.plain.verify, plain_steps),
                  milliseconds(profile.plain.other, plain_steps), "-"});
  for (const DrafterProfile& drafter : profile.drafters) {
    for (const DraftCost& cost : drafter.lengths) {
      rows.push_back(
          {drafter.name, fmt::format("{}", cost.drafted), milliseconds(cost.draft, cost.steps),
           milliseconds(cost.verify, cost.steps), milliseconds(cost.other, cost.steps),
           fmt::format("{:.3f}", cost.draft.median / static_cast<double>(cost.drafted) / forward)});
    }
  }
  write_aligned(out, rows, 1);
}

std::string write_profile(const Profile& profile) {
  Json target = Json::array();
  for (const CostPoint& point : profile.target.points) {
    target.push_back({{"new_tokens", point.new_tokens},
                      {"context", point.context},
                      {"seconds", {point.low, point.seconds, point.high}}});
  }
  Json drafters = Json::array();
  for (const DrafterProfile& drafter : profile.drafters) {
    Json lengths = Json::array();
    for (const DraftCost& cost : drafter.lengths) {
      lengths.push_back(cost_json(cost));
    }
    drafters.push_back({{"name", drafter.name},
                        {"drafter", drafter.description},
                        {"prompt_token_seconds", drafter.prompt_token},
                        {"lengths", std::move(lengths)}});
  }
  Json json = {{"format", kFormat},
               {"model", profile.model},
               {"machine", profile.machine},
               {"target", std::move(target)},
               {"temperature", profile.temperature},
               {"plain", cost_json(profile.plain)},
               {"drafters", std::move(drafters)}};
  if (profile.reads.weights > 0) {
    json["reads"] = reads_json(profile.reads);
  }
  if (profile.experts) {
    json["experts"] = experts_json(*profile.experts);
  }
  if (profile.layers) {
    json["layers"] = layers_json(*profile.layers);
  }
  return json_text(json, 1) + "\n";
}

Profile read_profile(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  try {
    const auto json = parse_strict_json(text, "its JSON");
    return parse_profile(RecordKeys(json));
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& exception) {
    throw Error(
        fmt::format("{}: is no profile ({}); write one with specdec profile MODEL --draft "
                    "DRAFTER --json FILE",
                    file.string(), plain_json_message(exception)));
  }
}

}  // namespace specdec
