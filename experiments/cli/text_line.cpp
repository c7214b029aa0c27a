#include "experiments/cli/text_line.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/formats/strict_json.h"

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

}  // namespace specdec
