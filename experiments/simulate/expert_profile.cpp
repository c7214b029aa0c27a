#include "experiments/simulate/expert_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

/// What a text wakes, which the predictions of simulate and cost_aware go by.
void print_text_counts(std::ostream& out, const ExpertProfile& profile) {
  std::vector<std::string> counts;
  for (const size_t tokens : {1U, 2U, 4U, 8U, 16U, 32U}) {
    if (tokens <= profile.text_distinct.size()) {
      counts.push_back(fmt::format("{}: {:.1f}", tokens, profile.text_distinct[tokens - 1]));
    }
  }
  if (!counts.empty()) {
    out << fmt::format("distinct experts of successive tokens of a text: {}\n",
                       fmt::join(counts, ", "));
  }
}

/// Counts of a key; none in files that were written before there were any.
std::vector<double> parse_counts(const nlohmann::json& json, const char* key) {
  auto counts = json.value(key, std::vector<double>());
  if (std::any_of(counts.begin(), counts.end(), [](double count) { return !(count >= 0.0); })) {
    throw Error(fmt::format("'experts' has a '{}' below 0", key));
  }
  return counts;
}

}  // namespace

void print_experts(std::ostream& out, const ExpertProfile& profile) {
  out << fmt::format("\nexperts: {} of {} a token, {} layers; milliseconds of a forward",
                     profile.chosen, profile.count, profile.layers);
  if (const auto& cost = profile.cost) {
    out << fmt::format(" = {:.3f} + {:.4f} tokens + {:.4f} distinct experts (error {:.1f} %)\n",
                       1e3 * cost->fixed, 1e3 * cost->per_row, 1e3 * cost->per_expert,
                       100.0 * cost->error);
  } else {
    out << ": no fit, its times do not tell tokens from experts\n";
  }
  std::vector<Cells> rows = {{"new tokens", "distinct", "if independent", "measured", "fitted"}};
  for (const ExpertSample& sample : profile.samples) {
    const auto tokens = static_cast<double>(sample.rows);
    rows.push_back(
        {fmt::format("{}", sample.rows), fmt::format("{:.1f}", sample.distinct),
         fmt::format("{:.1f}", independent_experts(profile.count, profile.chosen, tokens)),
         fmt::format("{:.3f}", 1e3 * sample.seconds),
         profile.cost ? fmt::format("{:.3f}", 1e3 * profile.cost->seconds(tokens, sample.distinct))
                      : "-"});
  }
  write_aligned(out, rows, 0);
  print_text_counts(out, profile);
}

Json experts_json(const ExpertProfile& profile) {
  Json samples = Json::array();
  for (const ExpertSample& sample : profile.samples) {
    samples.push_back(
        {{"new_tokens", sample.rows}, {"distinct", sample.distinct}, {"seconds", sample.seconds}});
  }
  Json json = {{"count", profile.count},
               {"chosen", profile.chosen},
               {"layers", profile.layers},
               {"samples", std::move(samples)},
               {"curve_distinct", profile.curve_distinct},
               {"text_distinct", profile.text_distinct},
               {"cost", nullptr}};
  if (const auto& cost = profile.cost) {
    json["cost"] = {{"fixed_seconds", cost->fixed},
                    {"token_seconds", cost->per_row},
                    {"expert_seconds", cost->per_expert},
                    {"relative_error", cost->error}};
  }
  return json;
}

ExpertProfile parse_experts(const nlohmann::json& json) {
  ExpertProfile profile{.count = json.at("count").get<int64_t>(),
                        .chosen = json.at("chosen").get<int64_t>(),
                        .layers = json.at("layers").get<int64_t>(),
                        .curve_distinct = parse_counts(json, "curve_distinct"),
                        .text_distinct = parse_counts(json, "text_distinct")};
  if (profile.chosen < 1 || profile.chosen > profile.count) {
    throw Error(fmt::format("'experts' has 'chosen' {} of {}", profile.chosen, profile.count));
  }
  for (const auto& sample : json.at("samples")) {
    profile.samples.push_back({.rows = sample.at("new_tokens").get<int64_t>(),
                               .distinct = sample.at("distinct").get<double>(),
                               .seconds = sample.at("seconds").get<double>()});
  }
  if (const auto& cost = json.at("cost"); !cost.is_null()) {
    profile.cost = {.fixed = cost.at("fixed_seconds").get<double>(),
                    .per_row = cost.at("token_seconds").get<double>(),
                    .per_expert = cost.at("expert_seconds").get<double>(),
                    .error = cost.at("relative_error").get<double>()};
    if (!(profile.cost->per_expert >= 0.0)) {
      throw Error("'experts' has an 'expert_seconds' that is no cost");
    }
  }
  return profile;
}

}  // namespace specdec
