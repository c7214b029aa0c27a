#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/regex/code_point_partitions.h"
#include "grammar/regex/regex_nodes.h"
#include "grammar/tables/growing_array.h"

namespace specdec {

/// The automaton whose states are expressions and whose transitions are their derivatives, built as
/// it is asked for (Owens, Reppy and Turon 2009, section 3.3). Not the partition of the paper is
/// computed first, but all derivatives of a state at once, as a map from ranges of code points.
/// For any number of threads: what is known is looked up without a lock, and the lock of the nodes
/// is held while the transitions of one state are built.
class RegexAutomaton {
 public:
  using Transition = RegexStore::Transition;

  /// `mutex`: held by whoever makes nodes; not to be held in calls of any of these.
  RegexAutomaton(RegexNodes& nodes, std::mutex& mutex, uint64_t max_states);

  void allow(uint64_t states);

  /// What follows after `c`; kNothing exactly when nothing can.
  RegexId next(RegexId state, char32_t c);
  /// True when something follows after one of these code points.
  bool goes_on(RegexId state, const CodePoints::Range& points);
  std::vector<Transition> transitions(RegexId state);
  /// True when some text is in the language.
  bool is_live(RegexId state);
  /// Throws GrammarError when each text is so long that the states on the way to its end are more
  /// than may be built.
  void check_length(RegexId state) const;
  uint64_t states() const { return built_.load(std::memory_order_relaxed); }
  bool is_half_full() const { return states() > max_states_ / 2; }
  uint64_t bytes() const;

 private:
  /// Covers all code points, sorted; neighbours differ in their targets.
  using Map = std::vector<Transition>;
  struct Segment {
    char32_t first = 0;
    char32_t last = 0;
    RegexId target = 0;
  };
  struct Table {
    uint32_t partition = 0;  ///< where the targets change; many states share one
    const RegexId* targets = nullptr;
  };
  enum class Life : uint8_t { kUnknown, kLive, kDead };
  struct State {
    std::atomic<uint32_t> table = 0;  ///< 0 when not built
    std::atomic<Life> life = Life::kUnknown;
  };

  /// Table of a state; nullptr when not built.
  const Table* find_table(RegexId state) const;
  const Table& table(RegexId state);
  // Under the lock, down to `append`.
  const Table& build(RegexId state);
  const RegexId* keep_targets(const Map& map);
  uint64_t stored() const { return stored_targets_ + nodes_.stored_operands(); }
  void check_budget(RegexId state) const;
  /// Counts what is done, so that building few but large states ends too.
  void spend(uint64_t work);
  [[noreturn]] void fail_too_large() const;
  uint32_t partition_of(const Map& map);

  Map derive(RegexId regex);
  Map derive_anew(RegexId regex);
  Map map_of(const Table& table) const;
  void remember(RegexId regex, const Map& map);
  Map derive_class(RegexId regex) const;
  Map derive_concat(RegexId regex);
  Map derive_repeat(RegexId regex);
  Map derive_complement(RegexId regex);
  Map derive_operands(RegexId regex);
  void append_followed_by(const Map& map, RegexId tail, std::vector<Segment>& out);
  Map combine(const std::vector<Segment>& segments, size_t needed);
  Map overlay(const std::vector<Segment>& segments, size_t needed);
  RegexId combine_targets(const std::vector<RegexId>& targets, size_t needed);
  static void append(char32_t last, RegexId target, Map& map);

  Life life(RegexId state) const;
  bool search_live(RegexId start);

  RegexNodes& nodes_;
  std::mutex& mutex_;
  uint64_t max_states_;
  /// What may be built, and what was there when this was said.
  struct Budget {
    uint64_t states = 0;
    uint64_t built = 0;
    uint64_t stored = 0;
    uint64_t work = 0;
  };
  Budget budget_;
  int depth_ = 0;
  uint64_t work_ = 0;
  std::unordered_map<RegexId, Map> derived_;  ///< of parts of states, where it took long
  size_t derived_transitions_ = 0;            ///< in all of `derived_`
  GrowingArray<State> states_;
  GrowingArray<Table> tables_;  ///< from 1 on
  std::atomic<uint32_t> built_ = 0;
  std::vector<std::unique_ptr<RegexId[]>> target_blocks_;
  RegexId* next_target_ = nullptr;  ///< of the latest one
  size_t block_left_ = 0;           ///< of it
  uint64_t block_bytes_ = 0;
  uint64_t stored_targets_ = 0;
  CodePointPartitions partitions_;
};

}  // namespace specdec
