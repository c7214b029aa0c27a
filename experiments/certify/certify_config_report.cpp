#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "experiments/certify/certify_config.h"

namespace specdec {
namespace {

/// Differences that the text shows of a strategy; JSON has all.
constexpr size_t kShown = 3;

std::string name_of(const ConfigTest& test) {
  return test.point.empty() ? test.strategy : test.strategy + " at " + test.point;
}

std::string verdict_of(const ConfigTest& test) {
  return test.failed                        ? "FAILED"
         : test.promise == Promise::kSearch ? "search"
         : test.promise == Promise::kLossy  ? "lossy"
         : test.tells()                     ? "passed"
                                            : "untested";
}

std::string worst_cell_text(const WorstCell& worst) {
  return fmt::format("most off: {} outputs begin with [{}], {:.1f} expected", worst.count,
                     fmt::join(worst.beginning, ", "), worst.expected);
}

std::string sampled_line(const ConfigTest& test) {
  const auto& chi = test.chi_square;
  if (!test.tells()) {
    return fmt::format("prompt {}: only one output is likely, which tests nothing", test.prompt);
  }
  auto text = fmt::format("prompt {}: ", test.prompt);
  if (std::isinf(chi.statistic)) {
    text += "gave an output that the target never gives, p = 0";
  } else {
    text += fmt::format("chi-square {:.1f} of {} degrees, p = {:.3g}", chi.statistic, chi.degrees,
                        chi.p_value);
  }
  return text + (test.promise == Promise::kLossless
                     ? fmt::format(", {:.3g} after Holm", test.adjusted_p)
                     : " (declared lossy, not tested)");
}

std::string greedy_line(const ConfigTest& test) {
  return fmt::format("{} of {} prompts have the tokens of plain decoding ({} tokens){}",
                     test.prompts - static_cast<int64_t>(test.differences.size()), test.prompts,
                     test.tokens,
                     test.promise == Promise::kLossy ? " (declared lossy, not tested)" : "");
}

std::string line_of(const ConfigTest& test) {
  if (test.promise == Promise::kSearch) {
    return "not tested here: it promises other outputs than the target's";
  }
  return test.greedy ? greedy_line(test) : sampled_line(test);
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

std::string method_text(const ConfigCertificate& certificate) {
  const auto& options = certificate.options;
  const auto checked =
      std::count_if(certificate.tests.begin(), certificate.tests.end(), [](const auto& test) {
        return !test.greedy && test.promise == Promise::kLossless && test.tells();
      });
  auto text = fmt::format(
      "Sampled: the first {} new tokens of {} samples a prompt against the target's distribution, "
      "computed\n"
      "exactly, token by token from plain forwards. Cells: outputs expected 5 times or more, and "
      "for\n"
      "each likely beginning all its other continuations. A sample can miss small differences;\n"
      "'specdec certify' without --config proves the distribution exactly, on tiny models.\n",
      options.tokens, options.samples);
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
                               : "\nFAILED: a strategy was not tested; other prompts or a higher "
                                 "temperature may help")
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

nlohmann::json to_json(const ConfigTest& test) {
  nlohmann::json json = {{"strategy", test.strategy},
                         {"sweep_point", test.point},
                         {"mode", test.greedy ? "greedy" : "sampled"},
                         {"verdict", verdict_of(test)}};
  if (test.promise == Promise::kSearch) {
    return json;
  }
  if (test.greedy) {
    json["prompts"] = test.prompts;
    json["tokens"] = test.tokens;
    json["differences"] = nlohmann::json::array();
    for (const auto& difference : test.differences) {
      json["differences"].push_back(to_json(difference));
    }
    return json;
  }
  json["prompt"] = test.prompt;
  json["chi_square"] = test.chi_square.statistic;
  json["degrees"] = test.chi_square.degrees;
  json["p_value"] = test.chi_square.p_value;
  json["adjusted_p_value"] = test.adjusted_p;
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
  for (const auto& test : certificate.tests) {
    width = std::max(width, name_of(test).size());
  }
  for (const auto& test : certificate.tests) {
    out << fmt::format("{:<{}}  {:<8}  {}\n", name_of(test), width, verdict_of(test),
                       line_of(test));
    write_reasons(out, test);
  }
  write_footer(out, certificate);
}

void write_config_certificate_json(std::ostream& out, const ConfigCertificate& certificate) {
  auto tests = nlohmann::json::array();
  for (const auto& test : certificate.tests) {
    tests.push_back(to_json(test));
  }
  const nlohmann::json whole = {{"tests", tests},
                                {"samples", certificate.options.samples},
                                {"tokens", certificate.options.tokens},
                                {"false_alarm", kFalseAlarm},
                                {"prompts_left_out", certificate.left_out},
                                {"passed", certificate.passed()}};
  out << whole.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

}  // namespace specdec
