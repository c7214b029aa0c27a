#include "tests/experiments/report/report_sample.h"

#include <algorithm>

#include "experiments/report/conditions.h"

namespace specdec {
namespace {

constexpr int64_t kSteps = 5;

std::vector<std::string> point_labels(const ReportSample& sample) {
  std::vector<std::string> labels;
  for (const ReportSweepPoint& point : sample.points) {
    labels.push_back(point.label);
  }
  return labels.empty() ? std::vector<std::string>{""} : labels;
}

GenerationRecord sample_record(const GenerationKey& key, int64_t accepted, int64_t question) {
  GenerationRecord record;
  record.key = key;
  record.category = question % 2 == 0 ? "prose" : "json";
  record.prompt_tokens = 8;
  record.cache_trace = KvTrace{
      .forwards = 1, .layers = {{4, 4, {4, 3}, {3.0, 1.0}}, {4, 4, {4, 3, 5}, {1.0, 1.0, 2.0}}}};
  record.question_id = key.prompt_id;
  Generation& generation = record.generation;
  const int64_t drafted = accepted > 0 ? 4 : 0;
  const double seconds = 1e-3 * (1.0 + 0.05 * static_cast<double>(question));
  for (int64_t i = 0; i < kSteps; ++i) {
    generation.steps.push_back({.drafted = drafted,
                                .accepted = accepted,
                                .committed = accepted + 1,
                                .depth = drafted,
                                .draft_seconds = drafted > 0 ? 0.2 * seconds : 0.0,
                                .verify_seconds = 0.7 * seconds});
    generation.decode_seconds += drafted > 0 ? 1.25 * seconds : seconds;
  }
  for (int64_t i = 0; i < kSteps * (accepted + 1) + 1; ++i) {
    generation.tokens.push_back(static_cast<Token>(100 + i));
  }
  return record;
}

/// The first strategy is right on two questions of three, the lossy one on half of them, and its
/// texts are more likely by 0.2 to 0.3 nats a token.
void measure(GenerationRecord& record, bool lossy, int64_t question) {
  const auto tokens = static_cast<double>(record.generation.tokens.size());
  record.is_right = question % (lossy ? 2 : 3) != 0;
  record.log_prob = tokens * (lossy ? -1.8 + 0.1 * static_cast<double>(question % 2) : -2.0);
  if (lossy) {
    record.bias =
        BiasSums{.tokens = 100, .taken = 60, .expected = 40.0, .variance = 20.0, .squares = 25.0};
  }
}

}  // namespace

std::vector<GenerationRecord> sample_records(const ReportSample& sample) {
  std::vector<GenerationRecord> records;
  for (const std::string& point : point_labels(sample)) {
    for (size_t s = 0; s < sample.strategies.size(); ++s) {
      for (int64_t question = 0; question < sample.questions; ++question) {
        records.push_back(
            sample_record({point, sample.strategies[s], "q" + std::to_string(question), 0},
                          static_cast<int64_t>(std::min<size_t>(s, 3)), question));
        const bool lossy = s + 1 == sample.strategies.size();
        if (sample.lossy && (lossy || s == 0)) {
          measure(records.back(), lossy, question);
        }
      }
    }
  }
  return records;
}

std::vector<TraceRecord> sample_traces(const ReportSample& sample) {
  std::vector<TraceRecord> traces;
  for (size_t s = 1; s < sample.strategies.size(); ++s) {
    TraceRecord record{.key = {"", sample.strategies[s], "q0", 0},
                       .category = "prose",
                       .verifier = "rejection",
                       .prompt_tokens = 8,
                       .trace = {.drawn = false, .depth = 3, .width = 2}};
    for (int64_t position = 0; position < 8; ++position) {
      TracePosition at{.drafted = 3, .depths = {}};
      at.depths.push_back({.rank = position % 2, .p = 0.5, .overlap = 0.5});
      at.depths.push_back({.rank = position % 2 == 0 ? 0 : -1, .p = 0.5, .overlap = 0.5});
      record.trace.positions.push_back(at);
    }
    traces.push_back(record);
  }
  return traces;
}

Report sample_report(const ReportSample& sample) {
  const auto records = sample_records(sample);
  const auto traces = sample_traces(sample);
  Report report;
  report.name = "sample";
  report.command = "specdec run sample.yaml";
  report.environment = read_environment();
  report.sweep_keys = sample.sweep_keys;
  report.sweep_points = sample.points;
  for (const std::string& name : sample.strategies) {
    report.strategies.push_back({.name = name, .description = "of a test"});
  }
  report.strategies.back().lossy = sample.lossy;
  report.summary = summarize(records, {.condition_of = conditions_by(report)});
  CostCurve curve;
  for (const int64_t tokens : {1, 2, 4, 8}) {
    curve.points.push_back({.new_tokens = tokens,
                            .context = 16,
                            .seconds = 1e-3 * (1.0 + 0.1 * static_cast<double>(tokens))});
  }
  report.details = collect_details({.records = records,
                                    .traces = traces,
                                    .cost_curve = curve,
                                    .tokenizer = nullptr,
                                    .condition_of = conditions_by(report)});
  return report;
}

}  // namespace specdec
