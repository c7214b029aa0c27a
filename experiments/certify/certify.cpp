#include "experiments/certify/certify.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/certify/case_processes.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

/// The output whose probability differs most, in words.
std::string describe_difference(const SequenceDistribution& found,
                                const SequenceDistribution& expected) {
  const std::vector<Token>* worst = nullptr;
  double largest = -1.0;
  const auto mass_of = [](const SequenceDistribution& distribution,
                          const std::vector<Token>& output) {
    const auto entry = distribution.find(output);
    return entry == distribution.end() ? 0.0 : entry->second;
  };
  for (const auto* distribution : {&found, &expected}) {
    for (const auto& [output, mass] : *distribution) {
      const double difference = std::abs(mass_of(found, output) - mass_of(expected, output));
      if (difference > largest) {
        largest = difference;
        worst = &output;
      }
    }
  }
  return worst == nullptr
             ? "no output at all"
             : fmt::format(
                   "the output ({}) has probability {:.6g}, and should have "
                   "{:.6g}",
                   fmt::join(*worst, ","), mass_of(found, *worst), mass_of(expected, *worst));
}

std::string reason_of(std::string text) {
  text = replace_all(std::move(text), "certify: ", "");
  return replace_all(std::move(text), "\n", "; ");
}

Finding finding_of(Promise kept) {
  switch (kept) {
    case Promise::kLossless:
      return Finding::kLossless;
    case Promise::kUnverified:
      return Finding::kUnverified;
    case Promise::kLossy:
      return Finding::kLossy;
    case Promise::kSearch:
      break;
  }
  return Finding::kSearch;
}

/// The models of the cells in work: one pair a seed, with the files that the cells need.
class ModelPairs {
 public:
  explicit ModelPairs(int64_t seeds) : seeds_(seeds) {}

  /// A file that cannot be written for a component throws what its hook threw.
  std::vector<std::unique_ptr<CertifyModels>>& of(const CertifyCell& cell) {
    if (pairs_.empty() || files_of_ != cell.files_of) {
      pairs_.clear();
      for (int64_t seed = 0; seed < seeds_; ++seed) {
        pairs_.push_back(
            std::make_unique<CertifyModels>(static_cast<uint64_t>(seed + 1), cell.write_files));
      }
      files_of_ = cell.files_of;
    }
    return pairs_;
  }

 private:
  int64_t seeds_;
  std::string files_of_;
  std::vector<std::unique_ptr<CertifyModels>> pairs_;
};

/// Fills one row.
class Trial {
 public:
  Trial(const Components& components, const CertifyOptions& options, CertifyRow& row)
      : components_(components), options_(options), row_(row) {}

  void run(ModelPairs& pairs) {
    try {
      for (const auto& models : pairs.of(row_.cell)) {
        for (const Task& task : certify_tasks(row_.greedy)) {
          try_task(*models, task);
        }
      }
      conclude();
    } catch (const c10::Error& error) {
      break_promise(with_difference(error.what_without_backtrace()));
    } catch (const std::exception& error) {
      break_promise(with_difference(error.what()));
    } catch (const Interrupted&) {
      throw;
    } catch (...) {
      break_promise(with_difference("it threw something that is no std::exception"));
    }
  }

 private:
  /// A refusal of one task leaves the others to be tried.
  void try_task(CertifyModels& models, const Task& task) {
    Enumeration found;
    try {
      const auto strategy = models.build(row_.cell.yaml, components_, task);
      found = outputs(*strategy, task);
    } catch (const ConfigError& error) {
      refusal_ = refusal_.empty() ? reason_of(error.what()) : refusal_;
      return;
    }
    ++tried_;
    row_.outcomes += found.outcomes;
    row_.drafted += found.drafted;
    row_.accepted += found.accepted;
    if (options_.enumerate) {
      compare(task.corrected ? kept_distribution(found.distribution) : found.distribution,
              expected(models, task, found.distribution));
    }
  }

  Enumeration outputs(DecodingStrategy& strategy, const Task& task) const {
    if (options_.enumerate) {
      return enumerate_outputs(strategy, task, options_.most_outcomes);
    }
    CounterRandomness random(1);
    Enumeration once{.outcomes = 1};
    for (const auto& step : strategy.generate(task.request(random)).steps) {
      once.drafted += step.drafted;
    }
    return once;
  }

  static SequenceDistribution kept(const Task& task, SequenceDistribution distribution) {
    return task.corrected ? kept_distribution(std::move(distribution)) : distribution;
  }

  SequenceDistribution expected(CertifyModels& models, const Task& task,
                                const SequenceDistribution& found) const {
    if (!row_.cell.equals.empty()) {
      return kept(task,
                  exact_distribution(*models.build(row_.cell.equals, components_, task), task));
    }
    // A search without a twin has nothing to be compared with here.
    return row_.cell.promise() == Promise::kSearch
               ? found
               : reference_distribution(models.target_logits(), task);
  }

  void compare(const SequenceDistribution& found, const SequenceDistribution& wanted) {
    const double difference = max_difference(found, wanted);
    if (difference > row_.difference) {
      row_.difference = difference;
      worst_ = describe_difference(found, wanted);
    }
  }

  void conclude() {
    const Promise promise = row_.cell.promise();
    const bool differs = !(row_.difference < kExactDistribution);
    if (tried_ == 0) {
      row_.finding = Finding::kRefused;
      row_.reason = refusal_;
    } else if (differs && (promise == Promise::kLossless || promise == Promise::kSearch)) {
      break_promise(worst_);
    } else {
      row_.finding = finding_of(promise);
      row_.reason = refusal_.empty() ? "" : "some settings are refused: " + refusal_;
      if (promise == Promise::kUnverified) {
        row_.reason += std::string(row_.reason.empty() ? "" : "; ") +
                       (differs ? "it promises nothing, and is lossy: " + reason_of(worst_)
                                : "it promises nothing, and may promise to be lossless");
      }
    }
  }

  /// What went wrong, after the difference of the distributions that was found before.
  std::string with_difference(const std::string& error) const {
    return row_.difference < kExactDistribution ? error : worst_ + "; " + error;
  }

  void break_promise(const std::string& reason) {
    row_.finding = Finding::kBroken;
    row_.reason = reason_of(reason);
  }

  const Components& components_;
  const CertifyOptions& options_;
  CertifyRow& row_;
  int64_t tried_ = 0;
  std::string refusal_;
  std::string worst_;
};

/// What a trial finds out about a row, as a child process hands it on.
struct Found {
  Finding finding = Finding::kBroken;
  double difference = 0.0;
  int64_t outcomes = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
};

std::string found_bytes(const CertifyRow& row) {
  const Found found{row.finding, row.difference, row.outcomes, row.drafted, row.accepted};
  return std::string(reinterpret_cast<const char*>(&found), sizeof(found)) + row.reason;
}

void take_found(const std::string& bytes, CertifyRow& row) {
  Found found;
  SPECDEC_CHECK(bytes.size() >= sizeof(found), "a row of {} bytes", bytes.size());
  std::memcpy(&found, bytes.data(), sizeof(found));
  row.finding = found.finding;
  row.difference = found.difference;
  row.outcomes = found.outcomes;
  row.drafted = found.drafted;
  row.accepted = found.accepted;
  row.reason = bytes.substr(sizeof(found));
}

/// Fills the rows in processes of their own.
void fill_apart(const Components& components, const CertifyOptions& options, ModelPairs& pairs,
                std::vector<CertifyRow>& rows, const std::function<void(const CertifyRow&)>& note) {
  const std::chrono::duration<double> limit(options.limit_seconds *
                                            static_cast<double>(options.seeds));
  run_in_processes(
      std::ssize(rows), {.limit = std::chrono::duration_cast<std::chrono::milliseconds>(limit)},
      [&](int64_t index) {
        CertifyRow& row = rows[static_cast<size_t>(index)];
        Trial(components, options, row).run(pairs);
        return found_bytes(row);
      },
      [&](int64_t index, const CaseOutcome& result) {
        CertifyRow& row = rows[static_cast<size_t>(index)];
        if (result.crash.empty()) {
          take_found(result.answer, row);
        } else {
          row.reason = result.crash;  // it stays broken
        }
        note(row);
      });
}

/// Components that were to be tested and were not.
std::vector<std::string> find_untested(const Components& components, const CertifyOptions& options,
                                       const std::vector<CertifyRow>& rows) {
  const auto names = options.names.empty() ? component_names(components) : options.names;
  std::vector<std::string> untested;
  for (const auto& name : names) {
    std::string refusal = "no example of a strategy has a place for it";
    bool ran = false;
    bool drafted = false;
    bool drafts = false;
    for (const auto& row : rows) {
      if (!row.cell.names(name)) {
        continue;
      }
      drafts = drafts || row.cell.drafter.type == name || row.cell.shape.type == name;
      drafted = drafted || row.drafted > 0;
      ran = ran || row.finding != Finding::kRefused;
      refusal = row.finding == Finding::kRefused ? row.reason : refusal;
    }
    if (!ran) {
      untested.push_back(fmt::format(
          "{}: refused everywhere ({}); give its registry entry `examples` that can be built", name,
          refusal));
    } else if (drafts && !drafted) {
      untested.push_back(name +
                         ": never drafted a token, so nothing was tested; give its registry "
                         "entry `examples` that draft on tiny models");
    }
  }
  return untested;
}

}  // namespace

std::string finding_name(Finding finding) {
  switch (finding) {
    case Finding::kLossless:
      return "lossless";
    case Finding::kUnverified:
      return "unverified";
    case Finding::kLossy:
      return "lossy";
    case Finding::kSearch:
      return "search";
    case Finding::kRefused:
      return "refused";
    case Finding::kBroken:
      break;
  }
  return "BROKEN";
}

int64_t CertifyResult::count(Finding finding) const {
  return std::count_if(rows.begin(), rows.end(),
                       [&](const CertifyRow& row) { return row.finding == finding; });
}

bool CertifyResult::passed() const {
  return !rows.empty() && untested.empty() && count(Finding::kBroken) == 0;
}

CertifyResult certify(const Components& components, const CertifyOptions& options,
                      std::ostream& log) {
  const c10::InferenceMode guard;
  CertifyResult result;
  for (const auto& cell : select_cells(components, options.names)) {
    for (const bool greedy : {true, false}) {
      result.rows.push_back({.cell = cell, .greedy = greedy});
    }
  }
  Progress progress(log, Progress::choose_style(options.quiet), std::ssize(result.rows),
                    "combinations");
  const auto note = [&](const CertifyRow& row) {
    progress.advance(row.cell.strategy.type + " " + row.cell.drafter.type);
  };
  ModelPairs pairs(options.seeds);
  if (options.isolate) {
    fill_apart(components, options, pairs, result.rows, note);
  } else {
    for (CertifyRow& row : result.rows) {
      InterruptGuard::check();
      Trial(components, options, row).run(pairs);
      note(row);
    }
  }
  result.untested = find_untested(components, options, result.rows);
  return result;
}

}  // namespace specdec
