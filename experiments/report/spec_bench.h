#pragma once
#include <iosfwd>
#include <span>
#include <string>

#include "experiments/metrics/metrics.h"
#include "experiments/report/report.h"

namespace specdec {

/// The task that Spec-Bench's tables put a category in: the eight kinds of MT-bench questions
/// together are "mt_bench", every other category is its own.
std::string spec_bench_task(const std::string& category);

/// Tables in Markdown with a column for each task and for all: mean accepted tokens (tokens per
/// step), tokens per second and speed-up by our definitions (totals), then the last two as
/// Spec-Bench's evaluation/speed.py computes them. `report` says which strategies are lossy.
void write_spec_bench(std::ostream& out, const Report& report,
                      std::span<const GenerationRecord> records);

}  // namespace specdec
