#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/certify/replay_components.h"
#include "experiments/certify/replay_rows.h"
#include "experiments/certify/replay_tables.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

struct ReplayOptions {
  int64_t most_outcomes = 10'000;  ///< of one table
  /// Most tables of few tokens for each kind of rows; after three of them, only until they have
  /// `most_outcomes` together.
  int64_t tables = 24;
  uint64_t first_seed = 1;  ///< of the tables
  bool quiet = false;
};

/// What a strategy is built from for a table.
struct ReplayParts {
  LanguageModel& target;
  const ReplayTables& tables;
  std::unique_ptr<Drafter> drafter;
};
using ReplayMake = std::function<std::unique_ptr<DecodingStrategy>(ReplayParts parts)>;

/// What replay found out about one strategy.
struct ReplayTest {
  std::string point = {};  ///< of the sweep
  std::string strategy = {};
  Promise promise = Promise::kLossless;
  int64_t rows = 0;
  bool own_rows = true;  ///< else too few were recorded, and they are of all strategies
  int64_t tables = 0;
  int64_t outcomes = 0;
  double difference = 0.0;  ///< the largest between the output's distribution and the target's
  int64_t prefixes = 0;     ///< of the table that has most of them
  int64_t sharing = 0;      ///< of these, those with the distributions of another
  DraftSize own = {};       ///< of the first draft that the strategy's shape plans
  /// The largest of the tables; where `reduced`, of the rows that were: as wide as can be, then as
  /// deep, and the other way around.
  std::vector<DraftSize> ran = {};
  bool reduced = false;  ///< the strategy's own draft has too many outcomes on some kind of rows
  std::string not_run = {};  ///< why; "" when it ran
  std::string error = {};    ///< a check of specdec's own that failed on the way

  /// A lossless strategy whose distribution is not the target's.
  bool failed() const;
};

/// Runs a strategy on tables of rows, which are not empty. Every way that the random choices of a
/// first step may fall is enumerated, and the texts that it leaves are continued by the target's
/// probabilities; whole texts of a few tokens are enumerated too. The distribution must be the
/// target's. Where a draft has too many outcomes, first the tokens that may follow a prefix become
/// fewer, which limits the width of trees too, then the draft's depth.
void replay(const ReplayMake& make, const std::vector<ReplayRow>& rows,
            const ReplayOptions& options, ReplayTest& test);

/// Records rows of the sampled strategies of a plan, whose components heed the stage, on its own
/// model and prompts. `log` gets the progress.
std::vector<ReplayRow> record_rows(const ExperimentPlan& plan, ReplayStage& stage,
                                   const ReplayOptions& options, std::ostream& log);

/// Replays each sampled strategy of a plan that has a verifier, and appends what is found; loads no
/// weights. Throws Interrupted after Ctrl-C, with the finished ones in `tests`.
void replay_config(const ExperimentPlan& plan, ReplayStage& stage,
                   const std::vector<ReplayRow>& rows, const ReplayOptions& options,
                   std::vector<ReplayTest>& tests);

/// Whether no test failed.
bool passed(const std::vector<ReplayTest>& tests);
void write_replay(std::ostream& out, const std::vector<ReplayTest>& tests);
nlohmann::json replay_json(const std::vector<ReplayTest>& tests);

}  // namespace specdec
