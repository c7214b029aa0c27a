#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/certify/certify_config.h"

namespace specdec {

/// What finished tests of a config depend on, by name: a file of other ones is refused.
using CertifyIdentity = std::map<std::string, std::string>;

/// The resolved config with the chosen strategies, the options, and the program: its file's size
/// and time.
CertifyIdentity certify_identity(const ExperimentPlan& plan, const ConfigCertifyOptions& options);

/// Finished tests of `certify --config`, in a file, so that a call that was interrupted goes on.
class CertifyState {
 public:
  /// Reads the file where there is one. Throws ConfigError for one that is damaged or of another
  /// identity; it names what differs.
  CertifyState(std::filesystem::path file, CertifyIdentity identity);

  /// The finished test of the same strategy, point and prompt.
  std::optional<ConfigTest> find(const ConfigTest& test) const;
  /// Adds a finished test and writes the file. Throws Error when it cannot be written.
  void add(const ConfigTest& test);
  /// Removes the file: all is finished.
  void remove();

 private:
  void read();

  std::filesystem::path file_;
  CertifyIdentity identity_;
  std::vector<ConfigTest> tests_;
};

}  // namespace specdec
