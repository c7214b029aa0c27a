#include "experiments/components/adapter_choice.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/transformer/adapters/lora_config.h"

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

std::vector<AdapterChoice> read_adapters(const ConfigNode& model) {
  std::vector<AdapterChoice> adapters;
  model.ignore("adapters");  // without the list, a wrong key still names it
  if (!model.has("adapters")) {
    return adapters;
  }
  for (const ConfigNode& node : model.children("adapters")) {
    adapters.push_back({node.require_path("path"), node.get<double>("scale", 1.0)});
    if (const auto& path = adapters.back().path; !path.empty()) {
      note_error(node, "path", [&] { (void)load_lora_config(path); });
    }
  }
  return adapters;
}

}  // namespace specdec
