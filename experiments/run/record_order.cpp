#include "experiments/run/record_order.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/config/yaml_tree.h"
#include "experiments/run/run_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// Where a strategy, or a point of the sweep, stands.
using Places = std::map<std::string, size_t>;

/// Names without a place come last.
size_t place_in(const Places& places, const std::string& name) {
  const auto found = places.find(name);
  return found == places.end() ? places.size() : found->second;
}

/// YAML of the folder's config; nullptr where it has none that can be read.
std::shared_ptr<const YamlTree> config_tree(const fs::path& folder) {
  const fs::path file = folder / "config.yaml";
  if (!fs::exists(file)) {
    return nullptr;
  }
  try {
    return parse_yaml(read_text_file(file), file.string(), true);
  } catch (const ConfigError&) {
    return nullptr;  // the records tell enough
  }
}

/// Places of the strategies in the folder's config.
Places strategy_places(const fs::path& folder) {
  Places places;
  const auto root = config_tree(folder);
  const auto* strategies = root == nullptr ? nullptr : root->find("strategies");
  for (size_t i = 0; strategies != nullptr && i < strategies->value->items.size(); ++i) {
    if (const auto* name = strategies->value->items[i]->find("name")) {
      places.try_emplace(name->value->text, places.size());
    }
  }
  return places;
}

template <class PlaceOf>
void order_by(const PlaceOf& place_of, std::vector<GenerationRecord>& records) {
  std::stable_sort(records.begin(), records.end(),
                   [&](const auto& a, const auto& b) { return place_of(a.key) < place_of(b.key); });
}

}  // namespace

std::vector<GenerationRecord> in_plan_order(const ExperimentPlan& plan,
                                            std::span<const GenerationRecord> records) {
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const auto& point : plan.points) {
    for (const auto& strategy : point.config.strategies) {
      places.try_emplace({point.label, strategy.name}, places.size());
    }
  }
  std::vector<GenerationRecord> ordered(records.begin(), records.end());
  order_by(
      [&](const GenerationKey& key) {
        const auto found = places.find({key.sweep_point, key.strategy});
        return found == places.end() ? places.size() : found->second;
      },
      ordered);
  return ordered;
}

std::vector<GenerationRecord> load_ordered_records(const fs::path& folder) {
  auto records = load_records(folder);
  const Places strategies = strategy_places(folder);
  order_by([&](const GenerationKey& key) { return place_in(strategies, key.strategy); }, records);
  // Sweep points of the first strategy come first: one that no swept key touches has records at one
  // point.
  Places points;
  for (const auto& record : records) {
    points.try_emplace(record.key.sweep_point, points.size());
  }
  order_by(
      [&](const GenerationKey& key) {
        return std::pair(place_in(points, key.sweep_point), place_in(strategies, key.strategy));
      },
      records);
  return records;
}

}  // namespace specdec
