#include "experiments/run/weights_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "experiments/config/config_file.h"

namespace specdec {

void check_weights(const std::filesystem::path& folder,
                   const std::map<std::string, std::string>& weights) {
  const auto file = folder / "environment.json";
  if (!std::filesystem::exists(file)) {
    return;
  }
  const auto json = nlohmann::json::parse(read_text_file(file, size_t{1} << 20U), nullptr, false);
  const auto recorded =
      json.is_object() ? json.value("weights", nlohmann::json::object()) : nlohmann::json::object();
  for (const auto& [name, fingerprint] : weights) {
    if (recorded.is_object() && recorded.contains(name) && recorded[name] != fingerprint) {
      throw Error(
          fmt::format("{}: the weights in {} changed since this run began (fingerprint {}, "
                      "then {}); use another --out",
                      folder.string(), name, fingerprint, recorded[name].dump()));
    }
  }
}

}  // namespace specdec
