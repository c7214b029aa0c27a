#include "experiments/run/recorded_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/formats/atomic_file.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_file.h"
#include "experiments/config/yaml_tree.h"
#include "experiments/metrics/environment.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// The run's config.yaml; an empty map where there is none.
std::shared_ptr<YamlTree> recorded_config(const fs::path& folder) {
  const fs::path file = folder / "config.yaml";
  return fs::exists(file) ? parse_yaml(read_text_file(file), file.string(), true)
                          : YamlTree::map(file.string());
}

}  // namespace

nlohmann::json recorded_environment(const fs::path& folder) {
  const fs::path file = folder / "environment.json";
  return fs::exists(file) ? parse_json_object(read_file(file), file.string())
                          : nlohmann::json(nlohmann::json::value_t::object);
}

std::string load_note(const fs::path& folder, std::span<const GenerationRecord> records) {
  LoadTotals load;
  for (const GenerationRecord& record : records) {
    if (record.load) {
      load.add(*record.load);
    }
  }
  nlohmann::json recorded = {{"cores", 1}, {"threads", 1}};
  recorded.update(recorded_environment(folder));
  const Environment environment =
      parse_environment(recorded, (folder / "environment.json").string());
  const auto signs = signs_of_load(load, environment.cores, environment.threads);
  return signs.empty() ? ""
                       : fmt::format("the machine was busy: {}. Its times are noisy.",
                                     fmt::join(signs, "; "));
}

std::string whole_texts_note(const fs::path& folder) {
  const auto config = recorded_config(folder);
  const YamlTree::Entry* loops = config->find("loops");
  return loops != nullptr && loops->value->text == "cut"
             ? fmt::format(
                   "{} has loops: cut; unlike its report, these figures are of whole texts.",
                   folder.string())
             : "";
}

int64_t recorded_trace_width(const fs::path& folder) {
  const auto config = recorded_config(folder);
  const YamlTree::Entry* trace = config->find("trace");
  const YamlTree::Entry* width = trace == nullptr ? nullptr : trace->value->find("width");
  int64_t value = 0;
  if (width != nullptr) {
    const std::string& text = width->value->text;
    (void)std::from_chars(text.data(), text.data() + text.size(), value);
  }
  return value;
}

}  // namespace specdec
