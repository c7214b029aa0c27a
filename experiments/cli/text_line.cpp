#include "experiments/cli/text_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "core/formats/utf8.h"

namespace specdec {

nlohmann::json parse_text_line(const std::string& line, const std::string& where) {
  nlohmann::json value;
  try {
    value = parse_strict_json(line, where);
  } catch (const WeightsError& error) {
    throw ConfigError(error.what());
  }
  if (!value.is_object() || !value.contains("text") || !value["text"].is_string()) {
    throw ConfigError(fmt::format("{}: should be an object with a \"text\"", where));
  }
  return value;
}

void require_utf8(std::string_view text, const std::string& source, const std::string& advice) {
  const auto runs = utf8_runs(text);
  const auto broken =
      std::find_if(runs.begin(), runs.end(), [](const Utf8Run& run) { return !run.valid; });
  if (broken != runs.end()) {
    throw ConfigError(fmt::format("{}: byte {} is not part of any UTF-8 character; {}", source,
                                  broken->text.data() - text.data() + 1, advice));
  }
}

}  // namespace specdec
