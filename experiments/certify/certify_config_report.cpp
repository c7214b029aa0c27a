#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string_view>

#include "core/formats/json_text.h"
#include "decoders/analysis/test_power.h"
#include "experiments/certify/certify_config.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

/// Differences that the text shows of a strategy; JSON has all.
constexpr size_t kShown = 3;
constexpr size_t kLineColumns = 120;
constexpr size_t kWidestName = 50;
constexpr double kBoundConfidence = 0.99;

std::string name_of(const ConfigTest& test) {
  return test.point.empty() ? test.strategy : test.strategy + " at " + test.point;
}

std::string result_of(const ConfigTest& test) {
  if (test.failed) {
    return "FAILED";
  }
  if (test.promise != Promise::kLossless) {
    return promise_name(test.promise);
  }
  return test.tells() ? "passed" : test.untested() ? "untested" : "skipped";
}

std::string worst_cell_text(const WorstCell& worst) {
  return fmt::format("most off: {} outputs begin with [{}], {:.1f} expected", worst.count,
                     fmt::join(worst.beginning, ", "), worst.expected);
}

std::string declared(const ConfigTest& test) {
  return fmt::format(" (declared {}, not tested)", promise_name(test.promise));
}

/// p-values, or that they decide nothing.
std::string p_text(const ConfigTest& test) {
  const auto p = fmt::format("p = {:.3g}", test.p_value());
  return test.promise == Promise::kLossless
             ? fmt::format("{}, {:.3g} after Holm", p, test.adjusted_p)
             : p + declared(test);
}

std::string cells_line(const ConfigTest& test) {
  const auto& chi = test.chi_square;
  if (!test.tells()) {
    return fmt::format("prompt {}: only one output is likely, so there is nothing to test",
                       test.prompt);
  }
  const auto found =
      std::isinf(chi.statistic)
          ? std::string("gave an output that the target never gives")
          : fmt::format("chi-square {:.1f} of {} degrees", chi.statistic, chi.degrees);
  return fmt::format("prompt {}: {}, {}; {} samples detect a total variation of {:.2g}",
                     test.prompt, found, p_text(test), test.samples, test.visible);
}

std::string grade_text(const std::optional<double>& grade) {
  return grade ? fmt::format("from {:g} % of the drafts on", 100.0 * *grade) : "not found";
}

std::string positions_line(const ConfigTest& test) {
  const auto& bias = test.positions->bias;
  auto text = fmt::format(
      "{} of {} tokens are {}, {:.1f} expected, {}", bias.taken(), bias.tokens(),
      test.positions->by_target ? "the target's most likely" : "rated higher by the drafter",
      bias.expected(), p_text(test));
  if (bias.impossible() > 0) {
    text += fmt::format("; {} tokens that the target never gives", bias.impossible());
  }
  return text;
}

/// What the test of positions sees, or could not.
void write_sight(std::ostream& out, const ConfigTest& test, double level) {
  if (!test.positions || !test.error.empty()) {
    return;
  }
  const auto& found = *test.positions;
  const double least = found.bias.total_variation_bound(kBoundConfidence);
  if (test.failed || test.promise != Promise::kLossless) {
    out << fmt::format(
        "  its total variation from the target is at least {:.2g} per token ({:g} % "
        "confidence)\n",
        least, 100.0 * kBoundConfidence);
  }
  if (test.promise != Promise::kLossless) {
    return;
  }
  out << fmt::format("  detects a total variation of {:.2g} per token", found.visible);
  out << (found.by_target
              ? "\n"
              : fmt::format("; a verifier that accepts all: {}; one that draws the correction from "
                            "p: {}\n",
                            grade_text(found.controls.accept_all),
                            grade_text(found.controls.target_residual)));
  const int64_t needed = found.tokens_needed(level / kDraws);
  if (!found.tells() && !test.failed) {
    out << (needed > 0
                ? fmt::format(
                      "  untested: it would need some {} tokens; lower --detect to {:.2g}\n",
                      needed,
                      visible_total_variation(static_cast<double>(needed), {1, level / kDraws},
                                              kPower))
                : "  untested: the drafter's distribution is the target's, only one token is "
                  "likely, or it proposes nothing; other prompts, another drafter or a higher "
                  "temperature may help\n");
  }
}

std::string greedy_line(const ConfigTest& test) {
  const auto drafts =
      test.drafts ? fmt::format(", {} of {} drafted tokens accepted", test.accepted, test.drafted)
                  : "";
  return fmt::format("{} of {} prompts have the tokens of plain decoding ({} tokens{}){}",
                     test.prompts - static_cast<int64_t>(test.differences.size()), test.prompts,
                     test.tokens, drafts, test.promise == Promise::kLossless ? "" : declared(test));
}

/// Why a greedy test that found no difference shows nothing.
void write_greedy_sight(std::ostream& out, const ConfigTest& test) {
  if (!test.greedy || test.failed || test.promise != Promise::kLossless || test.tells()) {
    return;
  }
  out << "  untested: its drafter proposed nothing, so no draft was verified; other prompts, more "
         "max_new_tokens or another drafter may help\n";
}

std::string line_of(const ConfigTest& test) {
  if (test.promise == Promise::kSearch) {
    return "not tested here: it promises other outputs than the target's";
  }
  if (!test.error.empty()) {
    return (test.prompt.empty() ? "" : "prompt " + test.prompt + ": ") + test.error;
  }
  return test.greedy ? greedy_line(test) : test.positions ? positions_line(test) : cells_line(test);
}

/// Why a test failed.
void write_reasons(std::ostream& out, const ConfigTest& test) {
  if (!test.failed) {
    return;
  }
  for (size_t i = 0; i < std::min(kShown, test.differences.size()); ++i) {
    const auto& difference = test.differences[i];
    out << fmt::format("  prompt {}: {}\n", difference.prompt, explain(difference.divergence));
  }
  if (test.differences.size() > kShown) {
    out << fmt::format("  and on {} more prompts; --json explains all\n",
                       test.differences.size() - kShown);
  }
  if (test.worst) {
    out << "  " << worst_cell_text(*test.worst) << "\n";
  }
}

struct NameWidths {
  size_t name = 0, result = 0;
};

void write_test(std::ostream& out, const ConfigTest& test, const NameWidths& widths, double level) {
  out << fmt::format("{:<{}}  {:<{}}  {}\n", name_of(test), widths.name, result_of(test),
                     widths.result, line_of(test));
  write_sight(out, test, level);
  write_greedy_sight(out, test);
  write_reasons(out, test);
}

/// Lines of at most kLineColumns columns; what is longer goes on below, indented.
void write_wrapped(std::ostream& out, const std::string& text) {
  constexpr std::string_view kIndent = "    ";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (count_characters(line) <= kLineColumns) {
      out << line << "\n";
      continue;
    }
    const auto parts = wrap_text(line, kLineColumns - kIndent.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      out << (i == 0 ? "" : kIndent) << parts[i] << "\n";
    }
  }
}

std::string method_text(const ConfigCertificate& certificate) {
  const auto& options = certificate.options;
  auto text = fmt::format(
      "Sampled: how many tokens of ordinary texts are among those that the drafter rates above "
      "the\n"
      "target, compared with the target's probability of that; and the first {} tokens after the\n"
      "prefill's, compared with the target's exact distribution. What a test 'detects' it finds "
      "in\n"
      "{:g} % of runs; 'specdec certify' without --config checks the distribution exactly, on "
      "tiny\n"
      "models.\n",
      options.tokens, 100.0 * kPower);
  const auto checked =
      std::count_if(certificate.tests.begin(), certificate.tests.end(), [](const auto& test) {
        return !test.greedy && test.promise == Promise::kLossless && test.tells();
      });
  if (checked > 0) {
    text += fmt::format(
        "The false-positive rate over all lossless strategies is at most {} (Holm, {} tests).\n",
        kFalseAlarm, checked);
  }
  return text;
}

void write_footer(std::ostream& out, const ConfigCertificate& certificate) {
  const auto& tests = certificate.tests;
  const bool failed =
      std::any_of(tests.begin(), tests.end(), [](auto& test) { return test.failed; });
  out << (certificate.passed() ? "\nPASSED"
          : failed             ? "\nFAILED"
                               : "\nFAILED: a strategy was not tested")
      << "\n";
  const auto is_greedy = [](const auto& test) { return test.greedy; };
  if (std::any_of(tests.begin(), tests.end(), is_greedy)) {
    out << "Greedy: every prompt's tokens against greedy decoding by plain forwards of one "
           "token.\n";
  }
  if (!std::all_of(tests.begin(), tests.end(), is_greedy)) {
    out << method_text(certificate);
  }
  if (std::none_of(tests.begin(), tests.end(),
                   [](const auto& test) { return test.promise == Promise::kLossless; })) {
    out << "No strategy here promises to be lossless: nothing was tested.\n";
  }
  if (certificate.left_out > 0) {
    out << fmt::format("Left out, being too long: {} prompt{}.\n", certificate.left_out,
                       certificate.left_out == 1 ? "" : "s");
  }
}

nlohmann::json to_json(const PromptDifference& difference) {
  const auto& divergence = difference.divergence;
  return {{"prompt", difference.prompt},
          {"position", divergence.position},
          {"token_plain", divergence.token_plain},
          {"token_other", divergence.token_other},
          {"gap_plain", divergence.gap_plain},
          {"gap_other", divergence.gap_other},
          {"ulp", divergence.ulp},
          {"logit_difference", divergence.logit_difference},
          {"width", divergence.width},
          {"cause", cause_name(divergence.cause())},
          {"explanation", explain(divergence)}};
}

nlohmann::json to_json(const PositionTest& test) {
  const auto grade = [](const std::optional<double>& found) {
    return found ? nlohmann::json(*found) : nlohmann::json();
  };
  return {{"texts", test.texts},
          {"tokens", test.bias.tokens()},
          {"favoured_by", test.by_target ? "target" : "drafter"},
          {"favoured", test.bias.taken()},
          {"expected", test.bias.expected()},
          {"variance", test.bias.variance()},
          {"impossible", test.bias.impossible()},
          {"sees_total_variation", test.visible},
          {"total_variation_at_least", test.bias.total_variation_bound(kBoundConfidence)},
          {"finds_accept_all_from", grade(test.controls.accept_all)},
          {"finds_target_residual_from", grade(test.controls.target_residual)}};
}

nlohmann::json to_json(const ConfigTest& test) {
  nlohmann::json json = {{"strategy", test.strategy},
                         {"sweep_point", test.point},
                         {"mode", test.greedy ? "greedy" : "sampled"},
                         {"result", result_of(test)}};
  if (!test.error.empty()) {
    json["error"] = test.error;
  }
  if (test.promise == Promise::kSearch) {
    return json;
  }
  if (test.greedy) {
    json["prompts"] = test.prompts;
    json["tokens"] = test.tokens;
    if (test.drafts) {
      json["drafted"] = test.drafted;
      json["accepted"] = test.accepted;
    }
    json["differences"] = nlohmann::json::array();
    for (const auto& difference : test.differences) {
      json["differences"].push_back(to_json(difference));
    }
    return json;
  }
  json["p_value"] = test.p_value();
  json["adjusted_p_value"] = test.adjusted_p;
  if (test.positions) {
    json["positions"] = to_json(*test.positions);
    return json;
  }
  json["prompt"] = test.prompt;
  json["samples"] = test.samples;
  json["sees_total_variation"] = test.visible;
  json["chi_square"] = test.chi_square.statistic;
  json["degrees"] = test.chi_square.degrees;
  if (test.worst) {
    json["most_off"] = {{"beginning", test.worst->beginning},
                        {"expected", test.worst->expected},
                        {"count", test.worst->count}};
  }
  return json;
}

}  // namespace

void write_config_certificate(std::ostream& out, const ConfigCertificate& certificate) {
  size_t width = 0;
  size_t result = 8;
  for (const auto& test : certificate.tests) {
    width = std::max(width, name_of(test).size());
    result = std::max(result, result_of(test).size());
  }
  width = std::min(width, kWidestName);
  std::ostringstream text;
  for (const auto& test : certificate.tests) {
    write_test(text, test, {width, result}, certificate.level);
  }
  if (std::any_of(certificate.tests.begin(), certificate.tests.end(),
                  [](const auto& test) { return test.failed; })) {
    text << "\nFailed:\n";
    for (const auto& test : certificate.tests) {
      if (test.failed) {
        write_test(text, test, {width, result}, certificate.level);
      }
    }
  }
  write_wrapped(out, text.str());
  write_footer(out, certificate);
}

void write_config_certificate_json(std::ostream& out, const ConfigCertificate& certificate) {
  auto tests = nlohmann::json::array();
  for (const auto& test : certificate.tests) {
    tests.push_back(to_json(test));
  }
  const nlohmann::json whole = {{"tests", tests},
                                {"detect", certificate.options.detect},
                                {"power", kPower},
                                {"bound_confidence", kBoundConfidence},
                                {"tokens", certificate.options.tokens},
                                {"false_alarm", kFalseAlarm},
                                {"prompts_left_out", certificate.left_out},
                                {"passed", certificate.passed()}};
  out << json_text(whole, 1) << "\n";
}

}  // namespace specdec
