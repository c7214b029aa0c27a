#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"
#include "grammar/tables/fixed_point.h"

namespace specdec {

struct JsonPlanOptions {
  bool schema_order = false;
  uint64_t max_alternatives = 10'000;  ///< of one value and type
  uint64_t max_steps = 3'000'000;      ///< of all the work on alternatives and feasibility
};

/// Whether values exist. What lies below JsonPlans asks it.
class Feasibility {
 public:
  virtual ~Feasibility() = default;
  /// True when some finite JSON value satisfies the formula.
  virtual bool possible(FormulaId formula) = 0;
  /// True when none does, whatever becomes of the questions under way.
  virtual bool impossible(FormulaId formula) = 0;
  /// At least so many different values, up to `cap`.
  virtual uint64_t distinct(FormulaId formula, uint64_t cap) = 0;
  /// True only when there are kPlenty of them.
  virtual bool has_plenty(FormulaId formula) = 0;
  static constexpr uint64_t kPlenty = 1'000;
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
  /// Throws GrammarError beyond max_steps.
  void count_step();
  /// Limits hold for the schema, and then for each step of a text.
  void begin_reading();

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
  void begin_question();  ///< bounds steps and depth

  const FormulaStore& formulas_;
  const SchemaFormulas& schemas_;
  JsonPlanOptions options_;
  std::vector<FormulaId> goals_;  ///< being planned, the innermost last
  uint64_t steps_ = 0;
  FixedPoint open_;
};

}  // namespace specdec
