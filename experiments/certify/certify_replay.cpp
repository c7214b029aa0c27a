#include "experiments/certify/certify_replay.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/certify/certify.h"
#include "experiments/certify/certify_models.h"
#include "experiments/run/arms.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

/// Fewer rows of its own say too little about a strategy.
constexpr int64_t kFewRows = 8;
/// Tokens that may follow a prefix, tried in this order.
constexpr int64_t kEntries[] = {4, 3, 2};
constexpr int64_t kWideVocab = 1024;
/// New tokens of whole texts: drafts of up to two tokens in the first step, and further steps.
constexpr int64_t kWholeText = 4;
/// New tokens of the text whose first draft shows the strategy's own shape.
constexpr int64_t kProbeText = 300;

/// Leaves generate() after the step that was asked for. No std::exception: it is no error.
struct StepTaken {};

/// How a table is made and run.
struct TableRun {
  ReplayTableOptions table = {};
  bool drawn = true;
  int64_t max_depth = 1;
  int64_t new_tokens = 0;
  bool whole = false;  ///< enumerates texts to their end, not the first step only
};

/// Too many outcomes.
struct TooMany {};

Task task_of(const ReplayTables& tables, const TableRun& run) {
  return {.prompt = tables.prompt(),
          .sampling = {.temperature = 1.0},
          .stop = {.max_new_tokens = run.new_tokens}};
}

/// The text after the prefill and one step; the whole one when the run asks for it.
std::vector<Token> generate(DecodingStrategy& strategy, const Task& task, Randomness& random,
                            bool whole) {
  std::vector<Token> output;
  int64_t calls = 0;
  Request request = task.request(random);
  request.on_tokens = [&](TokenSpan tokens) {
    output.insert(output.end(), tokens.begin(), tokens.end());
    if (++calls == 2 && !whole) {
      throw StepTaken{};
    }
  };
  try {
    (void)strategy.generate(request);
  } catch (const StepTaken&) {
  }
  return output;
}

/// The distribution of texts that begin as `beginnings` do and go on as the target does. What the
/// target cannot give stays as it is.
SequenceDistribution continued(const SequenceDistribution& beginnings,
                               const SequenceDistribution& target) {
  SequenceDistribution masses;  // of every beginning of the target's texts
  for (const auto& [text, mass] : target) {
    for (size_t size = 1; size <= text.size(); ++size) {
      masses[{text.begin(), text.begin() + static_cast<int64_t>(size)}] += mass;
    }
  }
  SequenceDistribution all;
  for (const auto& [beginning, mass] : beginnings) {
    if (!masses.contains(beginning)) {
      all[beginning] += mass;
    }
  }
  for (const auto& [text, mass] : target) {
    double sum = 0.0;
    for (size_t size = 1; size <= text.size(); ++size) {
      const std::vector<Token> beginning(text.begin(), text.begin() + static_cast<int64_t>(size));
      const auto found = beginnings.find(beginning);
      sum += found == beginnings.end() ? 0.0 : found->second * mass / masses.at(beginning);
    }
    all[text] = sum;
  }
  return all;
}

/// One strategy on its tables.
class Replay {
 public:
  Replay(const ReplayMake& make, const std::vector<ReplayRow>& rows, const ReplayOptions& options,
         ReplayTest& test)
      : make_(make), rows_(rows), options_(options), test_(test) {}

  void run() {
    for (const bool drawn : {true, false}) {
      std::vector<ReplayRow> kind;
      std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(kind),
                   [&](const ReplayRow& row) { return row.drawn == drawn; });
      if (!kind.empty()) {
        run_kind(kind, drawn);
      }
    }
    if (test_.tables == 0 && test_.not_run.empty()) {
      test_.not_run = "its first step drafts nothing";
    }
  }

 private:
  void run_kind(const std::vector<ReplayRow>& rows, bool drawn) {
    const DraftSize own = probe(drawn);
    if (own.depth == 0) {
      return;
    }
    kind_ = {.own = own};
    for (int64_t seed = 1; seed <= options_.tables + 1; ++seed) {
      const bool wide = seed > options_.tables;
      run_reduced(rows,
                  {.table = {.seed = static_cast<uint64_t>(seed), .vocab = wide ? kWideVocab : 0},
                   .drawn = drawn,
                   .max_depth = own.depth});
    }
    try_table(rows, {.table = {.seed = 1, .entries = 3},
                     .drawn = drawn,
                     .max_depth = own.depth,
                     .new_tokens = kWholeText,
                     .whole = true});
    note_sizes();
  }

  /// Rows of one kind must not stand in for those of the other, nor tables for one another.
  void note_sizes() {
    if (!kind_.covered) {
      test_.own = kind_.own;
      test_.ran = kind_.ran;
      test_.reduced = true;
    } else if (!test_.reduced) {
      test_.own = larger(test_.own, kind_.own);
      test_.ran = test_.own;
    }
  }

  /// The largest of the drafts until a step has one, where every token is possible.
  DraftSize probe(bool drawn) {
    std::vector<double> all(static_cast<size_t>(kWideVocab), 1.0 / kWideVocab);
    const std::vector<ReplayRow> dense = {{"", "", drawn, all, all}};
    const ReplayTables tables(dense, {.seed = 1, .entries = kWideVocab});
    TableModel target(tables);
    const auto strategy =
        make_({target, tables, drafter(tables, {.drawn = drawn, .max_depth = 256})});
    CounterRandomness random(1);
    (void)generate(*strategy, task_of(tables, {.new_tokens = kProbeText}), random, false);
    return target.largest();
  }

  static std::unique_ptr<Drafter> drafter(const ReplayTables& tables, const TableRun& run) {
    return std::make_unique<TableDrafter>(
        tables, TableDrafter::Options{.drawn = run.drawn, .max_depth = run.max_depth});
  }

  /// The largest shape that has not too many outcomes.
  void run_reduced(const std::vector<ReplayRow>& rows, TableRun run) {
    for (; run.max_depth > 0; --run.max_depth) {
      for (const int64_t entries : kEntries) {
        run.table.entries = entries;
        run.new_tokens = run.max_depth + 2;
        if (!known_too_many(run) && try_table(rows, run)) {
          return;
        }
      }
    }
  }

  /// Whether there are too many texts, or a table of the same sizes had too many outcomes.
  bool known_too_many(const TableRun& run) {
    int64_t texts = 1;
    for (int64_t token = 1; token < run.new_tokens; ++token) {
      texts *= run.table.entries;
      if (texts > options_.most_outcomes) {
        return true;
      }
    }
    return too_many_.contains({run.drawn, run.max_depth, run.table.entries});
  }

  /// False when it has too many outcomes.
  bool try_table(const std::vector<ReplayRow>& rows, const TableRun& run) {
    const ReplayTables tables(rows, run.table);
    TableModel target(tables);
    SequenceDistribution found;
    const int64_t before = test_.outcomes;
    try {
      found = enumerate(tables, target, run);
    } catch (const TooMany&) {
      test_.outcomes = before;
      too_many_.insert({run.drawn, run.max_depth, run.table.entries});
      return false;
    }
    const auto logits = [&](TokenSpan history) { return tables.target_logits(history); };
    const auto wanted = reference_distribution(logits, task_of(tables, run));
    test_.difference = std::max(
        test_.difference, max_difference(run.whole ? found : continued(found, wanted), wanted));
    ++test_.tables;
    const DraftSize size = target.largest();
    kind_.ran = size.nodes > kind_.ran.nodes ? size : kind_.ran;
    kind_.covered = kind_.covered || larger(size, kind_.own) == size;
    return true;
  }

  /// Each pass has a strategy of its own, so that nothing is kept between them.
  SequenceDistribution enumerate(const ReplayTables& tables, TableModel& target,
                                 const TableRun& run) {
    const Task task = task_of(tables, run);
    SequenceDistribution found;
    EnumeratingRandomness random;
    int64_t outcomes = 0;
    do {
      InterruptGuard::check();
      if (++outcomes > options_.most_outcomes) {
        throw TooMany{};
      }
      const auto strategy = make_({target, tables, drafter(tables, run)});
      const auto output = generate(*strategy, task, random, run.whole);
      found[output] += random.probability();
    } while (random.next_outcome());
    test_.outcomes += outcomes;
    return found;
  }

  const ReplayMake& make_;
  const std::vector<ReplayRow>& rows_;
  const ReplayOptions& options_;
  ReplayTest& test_;
  /// Drafts of the rows of one kind.
  struct Kind {
    DraftSize own;
    DraftSize ran = {};    ///< the largest of a table
    bool covered = false;  ///< a table had the strategy's own
  };
  Kind kind_ = {};
  std::set<std::tuple<bool, int64_t, int64_t>> too_many_;
};

bool is_row_of(const Arm& arm, const ReplayRow& row) {
  return row.strategy == arm.config->name && row.point == arm.sweep_point;
}

/// The rows of one arm; those of all where it has few.
std::vector<ReplayRow> rows_for(const Arm& arm, const std::vector<ReplayRow>& all) {
  std::vector<ReplayRow> own;
  std::copy_if(all.begin(), all.end(), std::back_inserter(own),
               [&](const ReplayRow& row) { return is_row_of(arm, row); });
  return std::ssize(own) < kFewRows ? all : own;
}

ReplayTest replay_arm(const Arm& arm, const ExperimentConfig& config, ReplayStage& stage,
                      const std::vector<ReplayRow>& all, const ReplayOptions& options) {
  const auto rows = rows_for(arm, all);
  ReplayTest test{.point = arm.sweep_point,
                  .strategy = arm.config->name,
                  .promise = arm.config->promise,
                  .rows = std::ssize(rows),
                  .own_rows = std::all_of(rows.begin(), rows.end(), [&](const ReplayRow& row) {
                    return is_row_of(arm, row);
                  })};
  if (rows.empty()) {
    test.not_run = "no drafter of the config proposed anything";
    return test;
  }
  ModelLoader loader(config.model);
  const ReplayMake make = [&](ReplayParts parts) {
    stage.drafter = [&parts] { return std::move(parts.drafter); };
    BuildContext context{parts.target, loader, [](const std::string& name, LanguageModel&) {
                           return made_up_cost_curve(name);
                         }};
    auto strategy = arm.config->make(context);
    stage.drafter = {};
    return strategy;
  };
  try {
    replay(make, rows, options, test);
  } catch (const Error& error) {
    test.not_run = error.what();
  }
  stage.drafter = {};
  return test;
}

}  // namespace

bool ReplayTest::failed() const {
  return promise == Promise::kLossless &&
         (!error.empty() || (not_run.empty() && !(difference < kExactDistribution)));
}

void replay(const ReplayMake& make, const std::vector<ReplayRow>& rows,
            const ReplayOptions& options, ReplayTest& test) {
  const c10::InferenceMode guard;
  try {
    Replay(make, rows, options, test).run();
  } catch (const c10::Error& error) {
    test.error = error.what_without_backtrace();
  } catch (const InternalError& error) {
    test.error = error.what();
  }
}

std::vector<ReplayTest> replay_config(const ExperimentPlan& plan, ReplayStage& stage,
                                      const std::vector<ReplayRow>& rows,
                                      const ReplayOptions& options) {
  std::vector<ReplayTest> tests;
  for (const auto& group : group_arms(plan)) {
    if (group.config->sampling.greedy()) {
      continue;
    }
    for (const auto& arm : group.arms) {
      if (!arm.config->verifier.empty()) {
        tests.push_back(replay_arm(arm, *group.config, stage, rows, options));
      }
    }
  }
  return tests;
}

bool passed(const std::vector<ReplayTest>& tests) {
  return std::none_of(tests.begin(), tests.end(),
                      [](const ReplayTest& test) { return test.failed(); });
}

}  // namespace specdec
