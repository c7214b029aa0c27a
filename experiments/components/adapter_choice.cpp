#include "experiments/components/adapter_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/transformer/adapters/lora_config.h"
#include "experiments/config/names.h"

namespace specdec {

AdapterChoice parse_adapter(const std::string& text) {
  AdapterChoice choice{.path = text};
  std::error_code code;
  const size_t colon = text.rfind(':');
  if (!std::filesystem::exists(text, code) && colon != std::string::npos) {
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [parsed, failure] = std::from_chars(begin, end, choice.scale);
    if (failure != std::errc() || parsed != end || !std::isfinite(choice.scale)) {
      throw ConfigError(fmt::format(
          "--adapter: '{}': what follows the colon should be a scale, a number such as 0.5", text));
    }
    choice.path = text.substr(0, colon);
  }
  if (!std::filesystem::is_directory(choice.path, code)) {
    throw ConfigError(
        fmt::format("--adapter: '{}': no such folder. Name a LoRA folder (adapter_config.json and "
                    "adapter_model.safetensors), with a scale after a colon or without one.",
                    choice.path.string()));
  }
  return choice;
}

std::string adapter_text(const AdapterChoice& adapter) {
  return adapter.scale == 1.0 ? adapter.path.string()
                              : fmt::format("{}:{}", adapter.path.string(), adapter.scale);
}

std::vector<AdapterChoice> adapters_for(const std::vector<AdapterChoice>& all,
                                        const std::vector<std::string>& names) {
  std::vector<AdapterChoice> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [&](const AdapterChoice& one) {
    return one.name.empty() || std::find(names.begin(), names.end(), one.name) != names.end();
  });
  return chosen;
}

std::string unknown_adapter(const std::vector<AdapterChoice>& all,
                            const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const AdapterChoice& adapter : all) {
    if (!adapter.name.empty()) {
      known.push_back(adapter.name);
    }
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return known.empty() ? fmt::format("no adapter '{}': model.adapters names none", name)
                           : fmt::format("no adapter '{}'{}", name, known_names_text(name, known));
    }
  }
  return "";
}

std::vector<AdapterChoice> read_adapters(const ConfigNode& model) {
  std::vector<AdapterChoice> adapters;
  model.ignore("adapters");  // without the list, a wrong key still names it
  if (!model.has("adapters")) {
    return adapters;
  }
  for (const ConfigNode& node : model.children("adapters")) {
    AdapterChoice adapter{node.require_path("path"), node.get<double>("scale", 1.0)};
    node.ignore("name");
    if (node.has("name")) {
      adapter.name = node.get<std::string>("name", "");
      if (adapter.name.empty()) {
        node.fail("name", "is empty: leave it out for an adapter of all prompts");
      } else if (unknown_adapter(adapters, {adapter.name}).empty()) {
        node.fail("name", fmt::format("two adapters are called '{}'", adapter.name));
      }
    }
    adapters.push_back(std::move(adapter));
    if (const auto& path = adapters.back().path; !path.empty()) {
      note_error(node, "path", [&] { (void)load_lora_config(path); });
    }
  }
  return adapters;
}

std::optional<AdapterChoice> read_adapter(const ConfigNode& node) {
  constexpr const char* kKey = "adapter";
  node.ignore(kKey);  // without it, a wrong key still names it
  if (!node.has(kKey)) {
    return std::nullopt;
  }
  if (!node.is_map(kKey)) {
    return AdapterChoice{node.require_path(kKey)};
  }
  const ConfigNode map = node.child(kKey);
  return AdapterChoice{map.require_path("path"), map.get<double>("scale", 1.0)};
}

}  // namespace specdec
