#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/json/value_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"
#include "grammar/tables/fixed_point.h"

namespace specdec {

struct JsonPlanOptions {
  bool schema_order = false;
  uint64_t max_alternatives = 10'000;  ///< of one value and type
  uint64_t max_steps = 3'000'000;      ///< of the schema's work on alternatives and feasibility
  uint64_t max_seconds = 30;           ///< of the same, for the schema, and for one call later on
};

/// Whether values exist. What lies below JsonPlans asks it.
class Feasibility {
 public:
  virtual ~Feasibility() = default;
  /// True when some finite JSON value satisfies the formula.
  virtual bool possible(FormulaId formula) = 0;
  /// True when none does, whatever becomes of the questions under way.
  virtual bool impossible(FormulaId formula) = 0;
  /// True only when it has that many different values; told by a part of them that is quickly
  /// counted.
  virtual bool has_many(FormulaId formula, uint64_t many) = 0;
  /// All values, or `most` of them and perhaps more. Lives until the next question.
  virtual const ValueList& values(FormulaId formula, uint64_t most) = 0;
  /// The values that nest no deeper than `depth`, all or `most` of them and perhaps more: quickly
  /// found where `depth` is small.
  virtual ValueList shallow_values(FormulaId formula, uint64_t most, int depth) = 0;
};

/// The questions about feasibility that are under way, what is being planned, and the limits of
/// both.
class PlanQuestions {
 public:
  /// Borrows both.
  PlanQuestions(const FormulaStore& formulas, const SchemaFormulas& schemas,
                JsonPlanOptions options)
      : formulas_(formulas), schemas_(schemas), options_(options) {}
  PlanQuestions(const PlanQuestions&) = delete;
  PlanQuestions& operator=(const PlanQuestions&) = delete;

  const JsonPlanOptions& options() const { return options_; }
  /// Throws GrammarError with the locations of what is being planned.
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws GrammarError beyond max_steps while the schema is compiled, and beyond max_seconds.
  void count_step();
  /// Counts work that is one step, but long, with the errors of count_step: looks at the clock now
  /// and then.
  void count_bytes(uint64_t bytes);
  /// Called when a step of a text begins. Steps are not bounded any more: how many there are
  /// depends on what other texts have made known.
  void begin_reading();
  /// A call about a text begins, of many steps; max_seconds hold for it.
  void begin_call();

  /// True when no question is under way: all answers hold.
  bool is_idle() const { return open_.open() == 0; }
  /// Answers a question about feasibility: a value that needs itself does not exist.
  template <class Question>
  bool ask(FixedPoint::Answers& answers, uint32_t key, Question question) {
    return open_.ask(answers, key, [&] {
      begin_question();
      return question();
    });
  }
  /// See FixedPoint::settles.
  template <class Work>
  bool settles(Work work) {
    return open_.settles(work);
  }

  /// Adds a goal for the time of its planning.
  class Planning {
   public:
    Planning(PlanQuestions& questions, FormulaId goal) : goals_(questions.goals_) {
      goals_.push_back(goal);
    }
    ~Planning() { goals_.pop_back(); }
    Planning(const Planning&) = delete;
    Planning& operator=(const Planning&) = delete;

   private:
    std::vector<FormulaId>& goals_;
  };

 private:
  /// Where the subschemas stand that a goal is made of, the first few; empty without any.
  std::string locations(FormulaId goal) const;
  void look_at_clock() const;
  void begin_question();  ///< bounds steps and depth

  const FormulaStore& formulas_;
  const SchemaFormulas& schemas_;
  JsonPlanOptions options_;
  std::vector<FormulaId> goals_;  ///< being planned, the innermost last
  using Clock = std::chrono::steady_clock;
  uint64_t steps_ = 0;
  uint64_t bytes_ = 0;  ///< of work since the last look at the clock
  bool compiled_ = false;
  bool in_calls_ = false;
  Clock::time_point begin_ = Clock::now();
  FixedPoint open_;
};

}  // namespace specdec
