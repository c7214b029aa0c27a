#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/certify/certify_models.h"
#include "experiments/components/components.h"

namespace specdec {

/// One registered component with one of its examples.
struct CertifyPart {
  std::string type;   ///< its name in the registry; "" = the strategy has no such part
  std::string label;  ///< "draft_model(weights: draft, sample: false)"
  std::string yaml;   ///< what stands for it in the strategy
  Promise promise = Promise::kLossless;
};

/// One combination of registered components.
struct CertifyCell {
  CertifyPart strategy, drafter, shape, verifier;
  std::string yaml = {};    ///< the strategy, `<folder>` not replaced
  std::string equals = {};  ///< as Example has it
  CertifyModels::WriteFiles write_files = {};
  std::string files_of = {};  ///< whose files they are; cells with the same can share models

  /// The weakest of its parts'.
  Promise promise() const;
  /// True when one of the parts is called so.
  bool names(const std::string& type) const;
  /// The parts' names.
  std::vector<std::string> types() const;
};

/// Every combination of what is registered; those with the same files follow one another.
std::vector<CertifyCell> certify_cells(const Components& components);

/// The names of all registered components.
std::vector<std::string> component_names(const Components& components);

/// The cells that hold one of `names`; all when there are none. Throws ConfigError for a name that
/// is not registered.
std::vector<CertifyCell> select_cells(const Components& components,
                                      const std::vector<std::string>& names);

/// What strategies are asked on the tiny models: greedy or sampled, with and without transforms,
/// penalties and stops.
std::vector<Task> certify_tasks(bool greedy);

}  // namespace specdec
