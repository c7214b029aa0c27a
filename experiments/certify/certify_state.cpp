#include "experiments/certify/certify_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/json_keys.h"
#include "core/formats/json_text.h"
#include "core/formats/strict_json.h"
#include "experiments/config/output_path.h"

namespace specdec {
namespace {

using Json = nlohmann::json;

// ---- One list of a struct's fields serves writing and reading ----

template <class Archive>
void visit(Archive& archive, BiasPlace& place) {
  archive("mass", place.mass);
  archive("excess", place.excess);
  archive("taken", place.taken);
}

template <class Archive>
void visit(Archive& archive, BiasSums& sums) {
  archive("tokens", sums.tokens);
  archive("taken", sums.taken);
  archive("expected", sums.expected);
  archive("variance", sums.variance);
  archive("squares", sums.squares);
}

template <class Archive>
void visit(Archive& archive, DraftBias& bias) {
  BiasSums sums = bias.sums();
  int64_t impossible = bias.impossible();
  std::vector<BiasPlace> places(bias.places().begin(), bias.places().end());
  archive("sums", sums);
  archive("impossible", impossible);
  archive("places", places);
  bias = DraftBias(sums, impossible, std::move(places));
}

template <class Archive>
void visit(Archive& archive, PositionTest& test) {
  archive("bias", test.bias);
  archive("texts", test.texts);
  archive("by_target", test.by_target);
  archive("checked", test.checked);
  archive("visible", test.visible);
  archive("accept_all", test.controls.accept_all);
  archive("target_residual", test.controls.target_residual);
}

template <class Archive>
void visit(Archive& archive, ChiSquare& chi) {
  archive("statistic", chi.statistic);
  archive("degrees", chi.degrees);
  archive("p_value", chi.p_value);
}

template <class Archive>
void visit(Archive& archive, WorstCell& cell) {
  archive("beginning", cell.beginning);
  archive("expected", cell.expected);
  archive("count", cell.count);
}

template <class Archive>
void visit(Archive& archive, TokenDivergence& divergence) {
  archive("position", divergence.position);
  archive("token_plain", divergence.token_plain);
  archive("token_other", divergence.token_other);
  archive("gap_plain", divergence.gap_plain);
  archive("gap_other", divergence.gap_other);
  archive("ulp", divergence.ulp);
  archive("logit_difference", divergence.logit_difference);
  archive("width", divergence.width);
  archive("own_choice", divergence.own_choice);
  archive("repeated", divergence.repeated);
}

template <class Archive>
void visit(Archive& archive, PromptDifference& difference) {
  archive("prompt", difference.prompt);
  archive("divergence", difference.divergence);
}

/// The decision over all tests, adjusted_p and what follows from it, is made anew.
template <class Archive>
void visit(Archive& archive, ConfigTest& test) {
  archive("strategy", test.strategy);
  archive("point", test.point);
  archive("promise", test.promise);
  archive("greedy", test.greedy);
  archive("prompt", test.prompt);
  archive("positions", test.positions);
  archive("chi_square", test.chi_square);
  archive("samples", test.samples);
  archive("visible", test.visible);
  archive("worst", test.worst);
  archive("prompts", test.prompts);
  archive("tokens", test.tokens);
  archive("drafts", test.drafts);
  archive("drafted", test.drafted);
  archive("accepted", test.accepted);
  archive("differences", test.differences);
  archive("error", test.error);
  archive("failed", test.failed);
}

class StateWriter {
 public:
  explicit StateWriter(Json& out) : out_(out) {}
  template <class T>
  void operator()(const char* key, T& value) {
    out_[key] = json_of(value);
  }

 private:
  static Json json_of(bool& value) { return value; }
  static Json json_of(int64_t& value) { return value; }
  static Json json_of(Token& value) { return value; }
  static Json json_of(std::string& value) { return value; }
  static Json json_of(Promise& value) { return static_cast<int>(value); }
  /// JSON has neither infinities nor NaN.
  static Json json_of(double& value) {
    return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
  }
  template <class T>
  static Json json_of(std::optional<T>& value) {
    return value ? json_of(*value) : Json();
  }
  template <class T>
  static Json json_of(std::vector<T>& values) {
    Json list = Json::array();
    for (auto& value : values) {
      list.push_back(json_of(value));
    }
    return list;
  }
  template <class T>
  static Json json_of(T& fields) {
    Json object = Json::object();
    StateWriter writer(object);
    visit(writer, fields);
    return object;
  }

  Json& out_;
};

class StateReader {
 public:
  explicit StateReader(const Json& in) : in_(in) {}
  template <class T>
  void operator()(const char* key, T& value) {
    read(in_.at(key), value);
  }

 private:
  /// The JSON library would cut 1.5 to 1.
  template <class T>
  static void read_whole(const Json& json, T& value, int64_t least, int64_t most) {
    if (!json.is_number_integer() || json.get<int64_t>() < least || json.get<int64_t>() > most) {
      throw Error(fmt::format("it has {} in a whole number's place", describe_json(json)));
    }
    value = static_cast<T>(json.get<int64_t>());
  }
  static void read(const Json& json, bool& value) { value = json.get<bool>(); }
  static void read(const Json& json, int64_t& value) {
    using Limits = std::numeric_limits<int64_t>;
    read_whole(json, value, Limits::min(), Limits::max());
  }
  static void read(const Json& json, Token& value) {
    read_whole(json, value, std::numeric_limits<Token>::min(), std::numeric_limits<Token>::max());
  }
  static void read(const Json& json, std::string& value) { value = json.get<std::string>(); }
  static void read(const Json& json, Promise& value) {
    read_whole(json, value, 0, static_cast<int64_t>(Promise::kSearch));
  }
  static void read(const Json& json, double& value) {
    if (json.is_number()) {
      value = json.get<double>();
      return;
    }
    const auto text = json.get<std::string>();
    value = text == "inf" || text == "-inf" ? std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::quiet_NaN();
    value = text == "-inf" ? -value : value;
  }
  template <class T>
  static void read(const Json& json, std::optional<T>& value) {
    value.reset();
    if (!json.is_null()) {
      read(json, value.emplace());
    }
  }
  template <class T>
  static void read(const Json& json, std::vector<T>& values) {
    values.clear();
    for (const Json& element : json) {
      read(element, values.emplace_back());
    }
  }
  template <class T>
  static void read(const Json& json, T& fields) {
    StateReader reader(json);
    visit(reader, fields);
  }

  const Json& in_;
};

std::string program_text() {
  std::error_code unknown;
  const std::filesystem::path program = "/proc/self/exe";
  const auto size = std::filesystem::file_size(program, unknown);
  const auto time = std::filesystem::last_write_time(program, unknown);
  return fmt::format("{} bytes, {}", size, time.time_since_epoch().count());
}

bool is_same_test(const ConfigTest& a, const ConfigTest& b) {
  return a.strategy == b.strategy && a.point == b.point && a.prompt == b.prompt;
}

}  // namespace

CertifyIdentity certify_identity(const ExperimentPlan& plan, const ConfigCertifyOptions& options) {
  std::string config = plan.yaml;
  for (const auto& strategy : plan.points.front().config.strategies) {
    config += "\n" + strategy.name;
  }
  return {
      {"config", std::move(config)},
      {"options", fmt::format("--detect {} --samples {} --tokens {} --prompts {}", options.detect,
                              options.samples, options.tokens, options.prompts)},
      {"build of the program", program_text()}};
}

CertifyState::CertifyState(std::filesystem::path file, CertifyIdentity identity)
    : file_(std::move(file)), identity_(std::move(identity)) {
  if (const std::string why = refused_output(file_); !why.empty()) {
    throw ConfigError("--state: " + why);
  }
  if (std::filesystem::exists(file_)) {
    read();
  }
}

void CertifyState::read() {
  const std::string text = read_file(file_);
  try {
    const Json json = parse_json_line(text);
    const auto identity = json.at("identity").get<CertifyIdentity>();
    for (const auto& [name, text] : identity_) {
      const auto found = identity.find(name);
      if (found == identity.end() || found->second != text) {
        throw ConfigError(
            fmt::format("--state: {} holds tests of another {}; remove it, or name another file",
                        file_.string(), name));
      }
    }
    for (const Json& test : json.at("tests")) {
      StateReader reader(test);
      visit(reader, tests_.emplace_back());
    }
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format(
        "--state: {} is no file that certify wrote ({}); remove it, or name another file",
        file_.string(), plain_json_message(error)));
  }
}

std::optional<ConfigTest> CertifyState::find(const ConfigTest& test) const {
  const auto found = std::find_if(tests_.begin(), tests_.end(), [&](const ConfigTest& finished) {
    return is_same_test(finished, test);
  });
  return found == tests_.end() ? std::nullopt : std::optional(*found);
}

void CertifyState::add(const ConfigTest& test) {
  tests_.push_back(test);
  Json list = Json::array();
  for (ConfigTest& finished : tests_) {
    Json object = Json::object();
    StateWriter writer(object);
    visit(writer, finished);
    list.push_back(std::move(object));
  }
  write_file(file_, json_text(Json{{"identity", identity_}, {"tests", list}}, 1) + "\n");
}

void CertifyState::remove() { std::filesystem::remove(file_); }

}  // namespace specdec
