#include "experiments/cli/run_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "core/error.h"
#include "experiments/run/recorded_notes.h"
#include "experiments/run/recorded_sweep.h"
#include "experiments/run/run_folder.h"

namespace specdec {
namespace {

constexpr double kLikeSpeeds = 1.2;  // speeds further apart are explained

/// The target's curve that was measured under a condition: each is named by the first point of the
/// sweep that needed it.
std::optional<CostCurve> target_curve(const std::filesystem::path& run,
                                      const std::string& sweep_point,
                                      const std::vector<std::string>& alike) {
  std::vector<std::string> names = {"target at " + sweep_point};
  for (const std::string& label : alike) {
    names.push_back("target at " + label);
  }
  names.emplace_back("target");
  for (const std::string& name : names) {
    if (auto curve = load_cost_curve(run, name)) {
      return curve;
    }
  }
  return std::nullopt;
}

/// Of the first strategy, whose text is traced, where it drafts nothing.
std::optional<double> plain_speed(std::span<const GenerationRecord> records) {
  Counts counts;
  for (const GenerationRecord& record : records) {
    if (record.key.strategy == records.front().key.strategy) {
      counts.add(record.generation);
    }
  }
  return counts.drafted > 0 ? std::nullopt : decode_tokens_per_second(counts);
}

}  // namespace

RunCosts costs_of_run(const std::filesystem::path& run, const std::string& strategy,
                      const std::string& sweep_point) {
  RunCosts found;
  if (!std::filesystem::exists(run / "generations.jsonl")) {
    found.reason = "the run holds no generations.jsonl; give costs with --profile";
    return found;
  }
  auto records = load_records(run);
  std::vector<std::string> alike;
  try {
    alike = RecordedSweep(run).points_alike(sweep_point);
  } catch (const Error& error) {
    found.reason = error.what();
    return found;
  }
  std::erase_if(records, [&](const GenerationRecord& record) {
    return std::find(alike.begin(), alike.end(), record.key.sweep_point) == alike.end();
  });
  found.plain_tokens_per_second = plain_speed(records);
  found.load = load_note(run, records);
  const auto curve = target_curve(run, sweep_point, alike);
  if (!curve) {
    found.reason = "the run holds no cost curve of the target; give costs with --profile";
    return found;
  }
  try {
    found.costs = costs_of(*curve, records, strategy, sweep_point);
  } catch (const Error& error) {
    found.reason = error.what();
  }
  return found;
}

std::string plain_speed_text(const PlainSpeed& speed) {
  auto text = fmt::format("Speed-ups refer to plain decoding at {:.1f} tokens/s ({})",
                          speed.tokens_per_second, speed.arm);
  if (!speed.measured) {
    return text + ".";
  }
  text += fmt::format("; the run measured {:.1f}.", *speed.measured);
  const double ratio = speed.tokens_per_second / *speed.measured;
  if (std::max(ratio, 1.0 / ratio) > kLikeSpeeds) {
    text +=
        " These differ, since costs are medians of steps and the run's speed has its slow steps "
        "too: compare speed-ups, not tokens/s, with the run.";
    text += speed.load.empty() ? "" : " In the run " + speed.load;
  }
  return text;
}

}  // namespace specdec
