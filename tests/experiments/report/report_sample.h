#pragma once
#include "experiments/report/report.h"

namespace specdec {

/// What a sample report is made of.
struct ReportSample {
  std::vector<std::string> strategies = {"plain", "draft_model"};  ///< the first drafts nothing
  std::vector<ReportSweepPoint> points = {};
  std::vector<std::string> sweep_keys = {};
  int64_t questions = 12;
  /// The last strategy is lossy: answers are scored, texts measured.
  bool lossy = false;
};

/// Records of questions in two categories: strategy s accepts s of 4 drafted tokens in each step,
/// later questions take longer.
std::vector<GenerationRecord> sample_records(const ReportSample& sample);
/// Traces of width 2: at even positions the text follows the drafter's first choices, at odd ones
/// its second.
std::vector<TraceRecord> sample_traces(const ReportSample& sample);
/// A report with all details: cost curve, traces and examples.
Report sample_report(const ReportSample& sample);

}  // namespace specdec
