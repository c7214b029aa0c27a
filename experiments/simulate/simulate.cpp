#include "experiments/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.h"

namespace specdec {
namespace {

using Path = std::vector<int64_t>;

/// What one position of a trace may do under a shape.
class Round {
 public:
  Round(const TraceRecord& record, const ReplayShape& shape)
      : trace_(record.trace), shape_(shape), paths_(shape.tree.begin(), shape.tree.end()) {
    matches_q_ = record.verifier == "sample_match";
  }

  int64_t depth(const TracePosition& position) const {
    return std::min(shape_.depth, position.drafted);
  }
  /// Proposed tokens.
  int64_t nodes(const TracePosition& position) const {
    if (shape_.tree.empty()) {
      return depth(position);
    }
    return std::count_if(shape_.tree.begin(), shape_.tree.end(), [&](const Path& path) {
      return static_cast<int64_t>(path.size()) <= position.drafted;
    });
  }
  /// [k]: probability that exactly k tokens are accepted, of at most `left` that the text has.
  std::vector<double> accepted(const TracePosition& position, int64_t left) const {
    const int64_t longest = std::min(depth(position), left);
    std::vector<double> distribution(static_cast<size_t>(longest) + 1, 0.0);
    double reached = 1.0;
    Path path;
    for (int64_t i = 0; i < longest; ++i) {
      const double passes = pass(position, i, path);
      distribution[static_cast<size_t>(i)] = reached * (1.0 - passes);
      reached *= passes;
    }
    distribution.back() = reached;
    return distribution;
  }

 private:
  double pass(const TracePosition& position, int64_t i, Path& path) const {
    if (i >= static_cast<int64_t>(position.depths.size())) {
      return 0.0;
    }
    const TraceDepth& depth = position.depths[static_cast<size_t>(i)];
    if (!trace_.drawn) {
      path.push_back(depth.rank);
      const bool drafted = shape_.tree.empty() ? depth.rank == 0 : paths_.contains(path);
      return drafted ? 1.0 : 0.0;
    }
    if (matches_q_) {
      return depth.q;
    }
    return depth.p > depth.q ? depth.q / depth.p : 1.0;
  }

  const DraftTrace& trace_;
  const ReplayShape& shape_;
  std::set<Path> paths_;
  bool matches_q_;
};

bool is_greedy(const DraftTrace& trace) {
  return std::all_of(trace.positions.begin(), trace.positions.end(),
                     [](const TracePosition& position) {
                       return std::all_of(position.depths.begin(), position.depths.end(),
                                          [](const TraceDepth& depth) { return depth.p == 1.0; });
                     });
}

int64_t widest(const ReplayShape& shape) {
  int64_t width = 1;
  for (const Path& path : shape.tree) {
    width = std::max(width, *std::max_element(path.begin(), path.end()) + 1);
  }
  return width;
}

/// Why a tree with so many siblings cannot be simulated; "" when it can.
std::string width_refusal(const TraceRecord& record, int64_t width, int64_t asked_width) {
  const int64_t recorded = record.trace.width;
  if (width <= recorded) {
    return "";
  }
  if (asked_width >= width) {
    return fmt::format(
        "on prompt {} its drafter proposed tokens by itself, as one that retrieves, so only its "
        "first choice is known at any trace.width; simulate chains, or run the strategy with the "
        "tree",
        record.key.prompt_id);
  }
  return fmt::format(
      "it takes the {} best tokens and {} recorded; record again with trace.width: {} (a drafter "
      "that retrieves proposes one token only, at any width)",
      width, recorded == 1 ? "only the best was" : fmt::format("the {} best were", recorded),
      width);
}

}  // namespace

std::string replay_refusal(const TraceRecord& record, const ReplayShape& shape,
                           int64_t asked_width) {
  const DraftTrace& trace = record.trace;
  const std::string verifier = record.verifier.empty() ? "?" : record.verifier;
  const bool known = verifier == "rejection" || verifier == "exact_match" ||
                     verifier == "sample_match" || is_greedy(trace);
  if (!known) {
    return fmt::format(
        "the verifier '{}' does not verify token by token, so a text does not tell "
        "what it accepts; known: exact_match, rejection, sample_match",
        verifier);
  }
  if (shape.depth > trace.depth) {
    return fmt::format(
        "it is {} deep and the drafts were recorded to depth {}; record again with "
        "trace.depth: {}",
        shape.depth, trace.depth, shape.depth);
  }
  if (!shape.tree.empty() && trace.drawn) {
    return "siblings would be drawn, and a text does not tell which; record a drafter that takes "
           "its best tokens (sample: false), or at temperature 0";
  }
  return width_refusal(record, widest(shape), asked_width);
}

void replay(const TraceRecord& record, const ReplayShape& shape, const StepCosts* costs,
            ReplayCounts& sums) {
  const Round round(record, shape);
  const auto& positions = record.trace.positions;
  const auto count = static_cast<int64_t>(positions.size());
  // [t]: expected rounds whose root is output token t.
  std::vector<double> begins(positions.size() + 1, 0.0);
  begins.front() = 1.0;
  sums.committed += static_cast<double>(count);
  if (costs != nullptr && count > 0) {
    sums.draft_seconds += costs->prompt_token * static_cast<double>(record.prompt_tokens);
  }
  for (int64_t t = 0; t < count; ++t) {
    const TracePosition& position = positions[static_cast<size_t>(t)];
    const double weight = begins[static_cast<size_t>(t)];
    const int64_t nodes = round.nodes(position);
    const std::vector<double> distribution = round.accepted(position, count - t);
    sums.steps += weight;
    sums.drafting_steps += nodes > 0 ? weight : 0.0;
    sums.drafted += weight * static_cast<double>(nodes);
    sums.accepted_at.resize(std::max(sums.accepted_at.size(), distribution.size() - 1));
    for (size_t accepted = 0; accepted < distribution.size(); ++accepted) {
      const double share = weight * distribution[accepted];
      sums.accepted += share * static_cast<double>(accepted);
      for (size_t i = 0; i < accepted; ++i) {
        sums.accepted_at[i] += share;
      }
      begins[std::min(static_cast<size_t>(t) + accepted + 1, positions.size())] += share;
    }
    if (costs != nullptr) {
      const int64_t context = record.prompt_tokens + t;
      sums.draft_seconds += weight * costs->draft_seconds(round.depth(position));
      sums.verify_seconds += weight * costs->verify.seconds(nodes + 1, context);
      sums.other_seconds += weight * costs->other_seconds(nodes + 1);
      sums.plain_seconds += costs->verify.seconds(1, context) + costs->other_seconds(1);
    }
  }
}

std::vector<double> mean_overlaps(std::span<const TraceRecord> records) {
  std::vector<double> sums;
  std::vector<double> counts;
  for (const TraceRecord& record : records) {
    for (const TracePosition& position : record.trace.positions) {
      sums.resize(std::max(sums.size(), position.depths.size()));
      counts.resize(sums.size());
      for (size_t i = 0; i < position.depths.size(); ++i) {
        sums[i] += position.depths[i].overlap;
        counts[i] += 1.0;
      }
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] /= counts[i];
  }
  return sums;
}

}  // namespace specdec
