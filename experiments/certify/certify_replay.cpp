#include "experiments/certify/certify_replay.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/certify/certify.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

constexpr int64_t kWideVocab = 1024;
/// Tables of few tokens, however many outcomes they have.
constexpr int64_t kFewestTables = 3;
/// Tables that show the strategy's own shape.
constexpr int64_t kProbes = 3;
/// New tokens of whole texts: drafts of up to two tokens in the first step, and further steps.
constexpr int64_t kWholeText = 4;
/// New tokens of the text whose first draft shows the strategy's own shape.
constexpr int64_t kProbeText = 300;

/// Leaves generate() after the step that was asked for. No std::exception: it is no error.
struct StepTaken {};

/// How a table is made and run.
struct TableRun {
  ReplayTableOptions table = {};
  int64_t max_depth = 1;
  int64_t new_tokens = 0;
  bool whole = false;  ///< enumerates texts to their end, not the first step only
};

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

/// Tokens that may follow a prefix, in the order in which they are tried for drafts of a width.
std::vector<int64_t> alphabets(int64_t width) {
  if (width > 7) {
    return {width + 1, width};
  }
  std::vector<int64_t> entries = {8, 6, 5, 4, 3, 2};
  std::erase_if(entries, [&](int64_t count) { return count < width; });
  return entries;
}

/// How deep and wide drafts may be, and the tokens that may follow a prefix.
struct ReplayLimits {
  int64_t depth = 1;
  int64_t width = 1;
  int64_t entries = 0;
  auto operator<=>(const ReplayLimits&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Leaves those that are not smaller than another.
void keep_largest(std::vector<DraftSize>& sizes) {
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  const auto all = sizes;
  std::erase_if(sizes, [&](const DraftSize& size) {
    return std::any_of(all.begin(), all.end(), [&](const DraftSize& other) {
      return !(other == size) && larger(size, other) == other;
    });
  });
}

/// One strategy on tables of rows of one kind: drawn drafts, or chosen ones.
class KindReplay {
 public:
  struct Parts {
    const ReplayMake& make;
    std::vector<ReplayRow> rows;
    const ReplayOptions& options;
    bool drawn;
  };
  /// `test` gets what is found.
  KindReplay(Parts parts, ReplayTest& test) : parts_(std::move(parts)), test_(test) {
    for (const auto& row : parts_.rows) {
      widest_ = std::max(widest_, std::ssize(row.p));
    }
  }

  void run() {
    own_ = probe();
    if (own_.depth == 0) {
      return;
    }
    const uint64_t first = parts_.options.first_seed;
    const int64_t before = test_.outcomes;
    run_largest({.seed = first, .vocab = kWideVocab});
    for (int64_t table = 1; table <= parts_.options.tables; ++table) {
      run_largest({.seed = first + static_cast<uint64_t>(table)});
      if (table >= kFewestTables && test_.outcomes - before > parts_.options.most_outcomes) {
        break;
      }
    }
    (void)try_table({.table = {.seed = first, .entries = 3},
                     .max_depth = own_.depth,
                     .new_tokens = kWholeText,
                     .whole = true});
    note_sizes();
  }

 private:
  /// The strategy's own draft: the largest on a few tables with all tokens of the rows, and, where
  /// these tokens may have limited it, on one where every token is possible.
  DraftSize probe() const {
    DraftSize size;
    for (uint64_t seed = 0; seed < kProbes; ++seed) {
      size = larger(size, probe(parts_.rows, {.seed = parts_.options.first_seed + seed,
                                              .entries = std::max<int64_t>(2, widest_)}));
    }
    if (size.depth > 0 && size.branches + 1 < widest_) {
      return size;
    }
    const std::vector<double> all(static_cast<size_t>(kWideVocab), 1.0 / kWideVocab);
    return larger(size, probe({{"", "", parts_.drawn, all, all}}, {.entries = kWideVocab}));
  }

  /// The largest of the drafts until a step has one.
  DraftSize probe(const std::vector<ReplayRow>& rows, const ReplayTableOptions& options) const {
    const ReplayTables tables(rows, options);
    TableModel target(tables);
    const auto strategy = parts_.make({target, tables, drafter(tables, 256)});
    CounterRandomness random(options.seed);
    (void)generate(*strategy, task_of(tables, {.new_tokens = kProbeText}), random, false);
    return target.largest();
  }

  std::unique_ptr<Drafter> drafter(const ReplayTables& tables, int64_t max_depth) const {
    return std::make_unique<TableDrafter>(
        tables, TableDrafter::Options{.drawn = parts_.drawn, .max_depth = max_depth});
  }

  /// Runs the largest drafts that have few enough outcomes. Another table may show that they have
  /// too many.
  void run_largest(const ReplayTableOptions& table) {
    for (bool done = false; !done;) {
      done = true;
      for (const auto& limits : largest_limits(table)) {
        if (!try_table(table_run(table, limits))) {
          known_[limits] = false;
          done = false;
        }
      }
    }
  }

  TableRun table_run(ReplayTableOptions table, const ReplayLimits& limits) const {
    table.entries = limits.entries;
    table.drafted = limits.width < own_.branches ? limits.width : 0;
    return {.table = table, .max_depth = limits.depth, .new_tokens = limits.depth + 2};
  }

  /// The strategy's own depth and width where an alphabet fits them. Else two: as wide as can be,
  /// then as deep, and the other way around.
  std::vector<ReplayLimits> largest_limits(const ReplayTableOptions& table) {
    const int64_t width = std::min(own_.branches, widest_);
    const ReplayLimits wide = grow(table, {.width = width}, &ReplayLimits::width);
    const ReplayLimits deep = grow(table, {.depth = own_.depth}, &ReplayLimits::depth);
    const ReplayLimits wide_deep = grow(table, {own_.depth, wide.width}, &ReplayLimits::depth);
    const ReplayLimits deep_wide = grow(table, {deep.depth, width}, &ReplayLimits::width);
    std::vector<ReplayLimits> all;
    for (const auto& limits : {wide_deep, deep_wide}) {
      if (limits.entries > 0 && std::find(all.begin(), all.end(), limits) == all.end()) {
        all.push_back(limits);
      }
    }
    return all;
  }

  /// The most of one dimension, up to the limits, that some alphabet fits; it is tried from 1 on,
  /// since what is too large takes longest. Entries are 0 when not even 1 fits.
  ReplayLimits grow(const ReplayTableOptions& table, const ReplayLimits& limits,
                    int64_t ReplayLimits::*dimension) {
    ReplayLimits best = limits;
    best.*dimension = 1;
    for (int64_t size = 1; size <= limits.*dimension; ++size) {
      ReplayLimits tried = limits;
      tried.*dimension = size;
      tried.entries = fitting_alphabet(table, tried);
      if (tried.entries == 0) {
        break;
      }
      best = tried;
    }
    return best;
  }

  /// 0: none.
  int64_t fitting_alphabet(const ReplayTableOptions& table, ReplayLimits limits) {
    for (const int64_t entries : alphabets(limits.width)) {
      limits.entries = entries;
      const auto [known, is_new] = known_.try_emplace(limits);
      if (is_new) {
        known->second = has_few_texts(limits) && has_few_outcomes(table_run(table, limits));
      }
      if (known->second) {
        return entries;
      }
    }
    return 0;
  }

  bool has_few_texts(const ReplayLimits& limits) const {
    int64_t texts = 1;
    for (int64_t token = 0; token <= limits.depth; ++token) {
      texts *= limits.entries;
      if (texts > parts_.options.most_outcomes) {
        return false;
      }
    }
    return true;
  }

  bool has_few_outcomes(const TableRun& run) const {
    const ReplayTables tables(parts_.rows, run.table);
    TableModel target(tables);
    return enumerate(tables, target, run).has_value();
  }

  /// False when it has too many outcomes.
  bool try_table(const TableRun& run) {
    const ReplayTables tables(parts_.rows, run.table);
    TableModel target(tables);
    const auto found = enumerate(tables, target, run);
    if (!found) {
      return false;
    }
    const auto logits = [&](TokenSpan history) { return tables.target_logits(history); };
    const auto wanted = reference_distribution(logits, task_of(tables, run));
    const auto& texts = found->texts;
    test_.difference = std::max(
        test_.difference, max_difference(run.whole ? texts : continued(texts, wanted), wanted));
    test_.outcomes += found->outcomes;
    ++test_.tables;
    if (target.prefixes() > test_.prefixes) {
      test_.prefixes = target.prefixes();
      test_.sharing = target.sharing();
    }
    if (!run.whole) {
      auto& size = ran_[{run.max_depth, run.table.drafted}];
      size = larger(size, target.largest());
    }
    return true;
  }

  struct Found {
    SequenceDistribution texts;
    int64_t outcomes = 0;
  };
  /// Enumerates a table's outcomes; none where there are too many. Each pass has a strategy of its
  /// own, so that nothing is kept between them.
  std::optional<Found> enumerate(const ReplayTables& tables, TableModel& target,
                                 const TableRun& run) const {
    const Task task = task_of(tables, run);
    Found found;
    EnumeratingRandomness random;
    do {
      InterruptGuard::check();
      if (++found.outcomes > parts_.options.most_outcomes) {
        return {};
      }
      const auto strategy = parts_.make({target, tables, drafter(tables, run.max_depth)});
      const auto output = generate(*strategy, task, random, run.whole);
      found.texts[output] += random.probability();
    } while (random.next_outcome());
    return found;
  }

  /// Rows of one kind must not stand in for those of the other.
  void note_sizes() {
    const bool whole = ran_.contains({own_.depth, 0});
    if (whole && test_.reduced) {
      return;
    }
    if (!whole && !test_.reduced) {
      test_.reduced = true;
      test_.own = {};
      test_.ran.clear();
    }
    test_.own = larger(test_.own, own_);
    for (const auto& [limits, size] : ran_) {
      if (!whole || limits == std::pair(own_.depth, int64_t{0})) {
        test_.ran.push_back(size);
      }
    }
    keep_largest(test_.ran);
  }

  Parts parts_;
  ReplayTest& test_;
  int64_t widest_ = 1;  // entries of a row at most
  DraftSize own_ = {};
  std::map<ReplayLimits, bool> known_;                    // whether drafts have few enough outcomes
  std::map<std::pair<int64_t, int64_t>, DraftSize> ran_;  // by depth and width; 0 = its own
};

}  // namespace

bool ReplayTest::failed() const {
  return promise == Promise::kLossless &&
         (!error.empty() || (not_run.empty() && !(difference < kExactDistribution)));
}

void replay(const ReplayMake& make, const std::vector<ReplayRow>& rows,
            const ReplayOptions& options, ReplayTest& test) {
  const c10::InferenceMode guard;
  try {
    for (const bool drawn : {true, false}) {
      std::vector<ReplayRow> kind;
      std::copy_if(rows.begin(), rows.end(), std::back_inserter(kind),
                   [&](const ReplayRow& row) { return row.drawn == drawn; });
      if (!kind.empty()) {
        KindReplay({make, std::move(kind), options, drawn}, test).run();
      }
    }
    if (test.tables == 0) {
      test.not_run = "its first step drafts nothing";
    }
  } catch (const c10::Error& error) {
    test.error = error.what_without_backtrace();
  } catch (const InternalError& error) {
    test.error = error.what();
  }
}

bool passed(const std::vector<ReplayTest>& tests) {
  return std::none_of(tests.begin(), tests.end(),
                      [](const ReplayTest& test) { return test.failed(); });
}

}  // namespace specdec
