#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/numbers/number_texts.h"
#include "grammar/tables/bounded_cache.h"
#include "grammar/tables/flat_map.h"
#include "grammar/tables/intern_table.h"

namespace specdec {

/// The texts of a set's numbers as an automaton over bytes, built as it is walked. Beginnings that
/// go on alike are one state, mostly. For any number of threads: what a step leads to is found out
/// without the lock.
class NumberAutomaton {
 public:
  using StateId = uint32_t;
  static constexpr StateId kDead = 0;
  static constexpr StateId kStart = 1;

  /// Throws GrammarError for numbers beyond 10^+-500.
  NumberAutomaton(const NumberPlan& plan, NumberStyle style);

  /// The state one byte further; kDead when no number of the set goes on so; nothing when no number
  /// at all does, so that this one ends before the byte.
  std::optional<StateId> next(StateId state, uint8_t byte);
  bool is_complete(StateId state) const { return this->state(state).complete; }
  /// Bytes that a number may go on with.
  std::string_view candidates(StateId state) const;
  /// See NumberTexts::find_completion.
  std::optional<std::string> find_completion(StateId state) const;
  const NumberTexts& texts() const { return texts_; }
  uint32_t states() const { return size_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  enum class Phase : uint8_t {
    kStart,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kLetter,
    kSign,
    kExponent
  };
  struct State {
    Phase phase = Phase::kStart;
    bool complete = false;
    std::string text;  ///< a representative of those that lead here
    bool operator==(const State&) const = default;
  };
  struct Hash {
    uint64_t operator()(const State& state) const;
  };

  static std::optional<Phase> after(Phase phase, uint8_t byte);
  const State& state(StateId state) const;
  void count();

  NumberTexts texts_;
  mutable std::mutex mutex_;  ///< of all below
  InternTable<State, Hash> states_;
  FlatMap transitions_;
  uint64_t text_bytes_ = 0;  ///< of the states' texts
  std::atomic<uint32_t> size_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
};

/// Automata of the sets that the grammars of a vocabulary met lately, each built once: numbers
/// without bounds, or counts from zero on, are in most schemas. For any number of threads.
class NumberAutomata {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{8} << 20;

  /// Throws what NumberAutomaton does.
  std::shared_ptr<NumberAutomaton> find(const NumberPlan& plan, NumberStyle style);
  /// Bytes of the automata as of the latest `find`: they grow later too.
  uint64_t bytes() const;

 private:
  /// The known small automaton of a key; nullptr when there is none, or a large one.
  std::shared_ptr<NumberAutomaton> known_small(const std::string& key);

  mutable std::mutex mutex_;
  BoundedCache<std::string, std::shared_ptr<NumberAutomaton>> known_{kMaxBytes};
};

}  // namespace specdec
