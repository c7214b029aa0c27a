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
std::vector<double> parse_counts(const RecordKeys& keys, const char* key) {
  auto counts = keys.numbers_if_there(key);
  if (std::any_of(counts.begin(), counts.end(), [](double count) { return count < 0.0; })) {
    keys.fail(key, "holds a count below 0");
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

ExpertProfile parse_experts(const RecordKeys& keys) {
  ExpertProfile profile{.count = keys.count("count"),
                        .chosen = keys.count("chosen"),
                        .layers = keys.count("layers"),
                        .curve_distinct = parse_counts(keys, "curve_distinct"),
                        .text_distinct = parse_counts(keys, "text_distinct")};
  if (profile.chosen < 1 || profile.chosen > profile.count) {
    keys.fail("chosen", fmt::format("is {} of {}", profile.chosen, profile.count));
  }
  for (const RecordKeys& sample : keys.objects("samples")) {
    profile.samples.push_back({.rows = sample.count("new_tokens"),
                               .distinct = sample.amount("distinct"),
                               .seconds = sample.amount("seconds")});
  }
  if (!keys.at("cost").is_null()) {
    const RecordKeys cost = keys.object("cost");
    profile.cost = {.fixed = cost.number("fixed_seconds"),
                    .per_row = cost.number("token_seconds"),
                    .per_expert = cost.amount("expert_seconds"),
                    .error = cost.number("relative_error")};
  }
  return profile;
}

}  // namespace specdec
