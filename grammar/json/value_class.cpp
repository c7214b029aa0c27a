#include "grammar/json/value_class.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "grammar/json/clause_reader.h"

namespace specdec {

std::vector<ValueClass> find_value_classes(Feasibility& feasibility,
                                           std::span<const FormulaId> listing) {
  std::map<ValueId, std::pair<std::string, std::set<size_t>>> lists;  // by value: formulas
  for (size_t i = 0; i < listing.size(); ++i) {
    for (const ValueEntry& entry :
         feasibility.values(listing[i], ClauseReader::kMaxConstants).entries) {
      lists.try_emplace(entry.id, entry.text, std::set<size_t>()).first->second.second.insert(i);
    }
  }
  std::map<std::set<size_t>, std::vector<JsonValue>> alike;
  for (const auto& [id, entry] : lists) {
    alike[entry.second].push_back(parse_json(entry.first, "value"));
  }
  std::vector<ValueClass> all(1);
  all.front() = {{}, true, std::vector<bool>(listing.size())};
  for (auto& [formulas, values] : alike) {
    std::vector<JsonValue>& told = all.front().values;
    told.insert(told.end(), values.begin(), values.end());
    ValueClass& group = all.emplace_back();
    group.values = std::move(values);
    group.truths.resize(listing.size());
    for (const size_t formula : formulas) {
      group.truths[formula] = true;
    }
  }
  return all;
}

}  // namespace specdec
