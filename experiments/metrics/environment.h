#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace specdec {

/// The commit that this program was built from, such as "2877f1e0...", with "+changes" after it
/// when the tree had uncommitted ones; "unknown" when it was built outside a git checkout.
std::string built_from_commit();
/// CMake's build type: "Release".
std::string build_type();
/// Versions of the libraries whose headers do not define them.
std::map<std::string, std::string> library_versions();

/// What a run ran on and with, so that its figures can be checked and repeated.
struct Environment {
  std::string commit;
  std::string date;         ///< start of the run, UTC, "2026-01-31T12:00:00Z"
  std::string host_system;  ///< kernel and architecture
  std::string cpu;          ///< and the instruction set that the kernels use: "AMD EPYC (avx2)"
  int64_t cores = 0;        ///< that this process may use
  int64_t threads = 0;      ///< that LibTorch computes with
  std::string gpu = "none";
  std::string compiler;
  std::string build_type;
  std::map<std::string, std::string> libraries;  ///< name to version: libtorch, fmt, yaml-cpp, ...
  // Set by the experiment:
  std::string thread_reason;    ///< "asked for", or what was measured
  int64_t prefill_threads = 0;  ///< of forwards that read prompts; 0 = as many as others
  std::string machine_profile;  ///< what the target's profile gave, or why nothing; "" = no file
  std::string model;            ///< the target's weights, as given
  std::string device = "cpu";
  std::string dtype;  ///< the formats of the target's weights, the largest share first
  std::map<std::string, std::string> weights;  ///< path as given to fingerprint
  std::vector<std::string> warnings = {};      ///< of these weights, for whoever reads the report
};

/// Reads all but model, device, gpu, dtype and weights; what the system does not report is
/// "unknown".
Environment read_environment();

nlohmann::json environment_json(const Environment& environment);
/// The environment that environment_json wrote; what is missing keeps its default. Throws Error
/// naming `where` and the key of a value of another type.
Environment parse_environment(const nlohmann::json& json, const std::string& where);

/// What environment.json says once a run goes on in `now`: what it was measured in before moves to
/// the end of "earlier". The same object when nothing but the date differs.
nlohmann::json resumed_environment(nlohmann::json recorded, const Environment& now);
/// What changed while a run was recorded, "cpu: A, then B"; dates aside.
std::vector<std::string> environment_changes(const nlohmann::json& recorded);

}  // namespace specdec
