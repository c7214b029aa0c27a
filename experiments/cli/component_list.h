#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/components/components.h"

namespace specdec {

/// What the registry says of one component.
struct ComponentHelp {
  std::string kind;  ///< as a user writes it: "strategy", "draft_length"
  std::string type;
  std::string help;
  std::string source;
  std::string page;
  std::string promise;
  std::vector<OptionHelp> options;
};

/// All components, by kind in the order strategies, drafters, verifiers, draft lengths, trees,
/// caches.
std::vector<ComponentHelp> describe_components(const Components& all);
/// Whether `name` is the component's kind: "cache", or "caches".
bool is_kind(const ComponentHelp& component, const std::string& name);
/// Components of this kind ("drafter") or type ("suffix"). Throws ConfigError when there is none.
std::vector<ComponentHelp> components_named(const std::vector<ComponentHelp>& all,
                                            const std::string& name);

/// A paragraph for each: what it does, and its options with their defaults.
void print_components(std::ostream& out, const std::vector<ComponentHelp>& components);
/// All that is known of each, its options as a table.
void print_details(std::ostream& out, const std::vector<ComponentHelp>& components);
/// {"drafters": [{"type": ..., "options": [...]}]}, a key for each kind.
nlohmann::ordered_json components_json(const std::vector<ComponentHelp>& components);

/// A page in Markdown in which what stands between `<!-- specdec list NAME -->` and `<!-- end of
/// list -->` is written anew: the components of a kind, or the options of one or several types.
/// `in_docs`: the page is in docs/, for its links. Throws ConfigError for an unknown name and for a
/// list without an end.
std::string with_component_lists(std::string_view page, const std::vector<ComponentHelp>& all,
                                 bool in_docs);

}  // namespace specdec
