#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "experiments/certify_config.h"

namespace specdec {
namespace {

std::string name_of(const ConfigTest& test) {
  return test.group.empty() ? test.strategy : test.strategy + " at " + test.group;
}

std::string verdict_of(const ConfigTest& test) {
  return test.failed                                    ? "FAILED"
         : test.promise == Promise::kLossy              ? "lossy"
         : !test.greedy && test.chi_square.degrees == 0 ? "untested"
                                                        : "passed";
}

std::string sampled_line(const ConfigTest& test) {
  const auto& chi = test.chi_square;
  if (chi.degrees == 0) {
    return fmt::format("prompt {}: only one output is likely, which tests nothing", test.prompt);
  }
  const auto adjusted = test.promise == Promise::kLossless
                            ? fmt::format(", {:.3g} after Holm", test.adjusted_p)
                            : std::string(" (not judged)");
  return fmt::format("prompt {}: chi-square {:.1f} of {} degrees, p = {:.3g}{}", test.prompt,
                     chi.statistic, chi.degrees, chi.p_value, adjusted);
}

std::string greedy_line(const ConfigTest& test) {
  return fmt::format("{} of {} prompts have the tokens of plain decoding ({} tokens)",
                     test.prompts - static_cast<int64_t>(test.differences.size()), test.prompts,
                     test.tokens);
}

void write_footer(std::ostream& out, const ConfigCertificate& certificate) {
  const bool greedy = certificate.tests.empty() || certificate.tests.front().greedy;
  const auto& options = certificate.options;
  out << fmt::format("\n{}: ", certificate.passed()      ? "PASSED"
                               : certificate.judged == 0 ? "FAILED (nothing could be tested)"
                                                         : "FAILED");
  if (greedy) {
    out << "every prompt's tokens against greedy decoding by plain forwards of one token.\n";
    return;
  }
  out << fmt::format(
      "the first {} new tokens of {} samples a prompt against the target's law,\ncomputed exactly "
      "token by token from plain forwards. Cells: outputs expected 5 times or more, and for\neach "
      "likely beginning all its other continuations. {} tests together raise a false alarm with\n"
      "a chance of at most {} (Holm). A sample can miss small differences; 'specdec certify'\n"
      "without --config proves the law exactly, on tiny models.\n",
      options.tokens, options.samples, certificate.judged, kFalseAlarm);
}

}  // namespace

void write_config_certificate(std::ostream& out, const ConfigCertificate& certificate) {
  size_t width = 0;
  for (const auto& test : certificate.tests) {
    width = std::max(width, name_of(test).size());
  }
  for (const auto& test : certificate.tests) {
    out << fmt::format("{:<{}}  {:<8}  {}\n", name_of(test), width, verdict_of(test),
                       test.greedy ? greedy_line(test) : sampled_line(test));
    for (const auto& difference : test.differences) {
      out << "  " << difference << "\n";
    }
  }
  write_footer(out, certificate);
}

void write_config_certificate_json(std::ostream& out, const ConfigCertificate& certificate) {
  auto tests = nlohmann::json::array();
  for (const auto& test : certificate.tests) {
    nlohmann::json json = {{"strategy", test.strategy},
                           {"group", test.group},
                           {"mode", test.greedy ? "greedy" : "sampled"},
                           {"verdict", verdict_of(test)}};
    if (test.greedy) {
      json["prompts"] = test.prompts;
      json["tokens"] = test.tokens;
      json["differences"] = test.differences;
    } else {
      json["prompt"] = test.prompt;
      json["chi_square"] = test.chi_square.statistic;
      json["degrees"] = test.chi_square.degrees;
      json["p_value"] = test.chi_square.p_value;
      json["adjusted_p_value"] = test.adjusted_p;
    }
    tests.push_back(std::move(json));
  }
  const nlohmann::json whole = {{"tests", tests},
                                {"samples", certificate.options.samples},
                                {"tokens", certificate.options.tokens},
                                {"false_alarm", kFalseAlarm},
                                {"passed", certificate.passed()}};
  out << whole.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

}  // namespace specdec
