#include "grammar/json/feasibility.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "core/error.h"
#include "grammar/interruption.h"

namespace specdec {

std::string PlanQuestions::locations(FormulaId goal) const {
  constexpr size_t kShown = 3;
  std::vector<std::string> found;
  const auto visit = [&](const auto& self, FormulaId formula) -> void {
    if (formulas_.kind(formula) == FormulaStore::Kind::kAtom) {
      const Atom& atom = formulas_.atom_of(formula);
      const std::string where = atom.is_schema() ? schemas_.location(atom) : "";
      if (!where.empty() && std::find(found.begin(), found.end(), where) == found.end()) {
        found.push_back(where);
      }
    } else if (formula > FormulaStore::kTrue) {
      for (const FormulaId part : formulas_.parts(formula)) {
        self(self, part);
      }
    }
  };
  visit(visit, goal);
  const size_t shown = std::min(found.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(std::span(found).first(shown), ", "));
  return found.size() > shown ? text + fmt::format(" and {} more", found.size() - shown) : text;
}

void PlanQuestions::fail(const std::string& what) const {
  for (auto goal = goals_.rbegin(); goal != goals_.rend(); ++goal) {
    if (const std::string where = locations(*goal); !where.empty()) {
      throw GrammarError(fmt::format("{}: {}", where, what));
    }
  }
  throw GrammarError(what);
}

void PlanQuestions::count_step() {
  Interruption::check();
  if (++steps_ > options_.max_steps && !compiled_) {
    fail(fmt::format(
        "the schema's combinations of anyOf, oneOf, not and allOf are too many: more than {} steps "
        "to tell its alternatives apart; raise max_steps, or make the subschemas of a oneOf differ "
        "in one required property with a const",
        options_.max_steps));
  }
  constexpr uint64_t kBetweenLooks = 64;  // steps may be long
  if (steps_ % kBetweenLooks == 0) {
    look_at_clock();
  }
}

void PlanQuestions::count_bytes(uint64_t bytes) {
  constexpr uint64_t kBetweenLooks = 16'384;
  bytes_ += bytes;
  if (bytes_ >= kBetweenLooks) {
    bytes_ = 0;
    Interruption::check();
    look_at_clock();
  }
}

void PlanQuestions::look_at_clock() const {
  const std::chrono::duration<double> spent = Clock::now() - begin_;
  if (spent.count() > static_cast<double>(options_.max_seconds)) {
    fail(
        fmt::format("to tell the schema's alternatives apart takes more than {} s; raise "
                    "max_seconds, or use fewer anyOf, oneOf and not",
                    options_.max_seconds));
  }
}

void PlanQuestions::begin_question() {
  constexpr uint32_t kMaxOpen = 2'000;  // bounds the stack
  count_step();
  if (open_.open() > kMaxOpen) {
    fail(fmt::format("the schema nests deeper than {} values and alternatives", kMaxOpen));
  }
}

void PlanQuestions::begin_reading() {
  if (!in_calls_ && open_.open() == 0 && goals_.empty() && steps_ > 0) {
    steps_ = 0;
    begin_ = Clock::now();
  }
}

void PlanQuestions::begin_call() {
  compiled_ = in_calls_ = true;
  steps_ = 0;
  begin_ = Clock::now();
}

}  // namespace specdec
