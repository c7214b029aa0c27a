#pragma once
#include <array>
#include <random>
#include <string>

#include "grammar/numbers/number_plan.h"

namespace specdec {

inline constexpr std::array kNumberBounds = {
    "0",    "1",   "-1",   "2.5",   "-2.5", "5",  "10",  "12", "100", "99",   "0.05", "1.2",
    "-0.1", "1e3", "1e20", "-1e-3", "50",   "52", "0.5", "20", "21",  "-125", "1.25", "-15"};
inline constexpr std::array kNumberUnits = {"1",  "2", "5",   "0.5", "0.1", "0.25",
                                            "10", "3", "1.5", "100", "7"};

/// Chooses how numbers are written: one plan in four must be written in some way.
inline void random_writing(std::mt19937& random, NumberPlan& plan) {
  using Written = NumberPlan::Written;
  if (random() % 4 == 0) {
    (void)plan.restrict_to(random() % 2 == 0 ? Written::kWhole : Written::kNotWhole);
  }
}

/// Bounds and units as they are met in schemas, and odd ones.
inline NumberPlan random_number_plan(std::mt19937& random) {
  NumberPlan plan;
  if (random() % 3 > 0) {
    plan.raise_lower(parse_decimal(kNumberBounds[random() % kNumberBounds.size()]),
                     random() % 2 == 0);
  }
  if (random() % 3 > 0) {
    plan.reduce_upper(parse_decimal(kNumberBounds[random() % kNumberBounds.size()]),
                      random() % 2 == 0);
  }
  for (uint32_t i = random() % 3; i > 0; --i) {
    plan.multiples.push_back(parse_decimal(kNumberUnits[random() % kNumberUnits.size()]));
  }
  for (uint32_t i = random() % 4 / 2; i > 0; --i) {
    plan.not_multiples.push_back(parse_decimal(kNumberUnits[random() % kNumberUnits.size()]));
  }
  random_writing(random, plan);
  return plan;
}

inline std::string describe(const NumberPlan& plan) {
  const auto fraction = [](const Decimal& value) { return to_fraction(value).get_str(); };
  std::string out =
      plan.lower ? (plan.lower_open ? "> " : ">= ") + fraction(*plan.lower) + " " : "";
  out += plan.upper ? (plan.upper_open ? "< " : "<= ") + fraction(*plan.upper) + " " : "";
  for (const Decimal& unit : plan.multiples) {
    out += "of " + fraction(unit) + " ";
  }
  for (const Decimal& unit : plan.not_multiples) {
    out += "not of " + fraction(unit) + " ";
  }
  constexpr std::array kWritten = {"", "written whole ", "not written whole "};
  out += kWritten[static_cast<size_t>(plan.written)];
  return out;
}

}  // namespace specdec
