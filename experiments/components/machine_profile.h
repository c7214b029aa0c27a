#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/components/components.h"

namespace specdec {

/// A drafter, and the length of chains that was the fastest with it.
struct ProfiledDraft {
  std::string drafter;  ///< see drafter_text
  int64_t draft_length = 0;
};

/// What `specdec profile --save` found to be fast for a model on one machine's CPU.
struct MachineProfile {
  std::string processor;  ///< as Environment::cpu says it
  int64_t cores = 0;
  int64_t prefill_threads = 0, decode_threads = 0;  ///< 0 = not said
  int64_t page_size = 0;                            ///< tokens; 0 = not said
  std::string dtype, kv_dtype;                      ///< that were asked for; "" = none
  std::vector<ProfiledDraft> drafts;
};

/// Where a model's profile is: FOLDER/specdec-profile.yaml, beside FILE.gguf
/// FILE.gguf.specdec-profile.yaml.
std::filesystem::path machine_profile_file(const std::filesystem::path& model);
/// Throws ConfigError with all mistakes, each with file, line and key: no YAML, keys that are
/// missing, unknown or of a wrong type, drafters of types that `components` do not have.
MachineProfile read_machine_profile(const std::filesystem::path& file,
                                    const Components& components);
/// Writes the file whole or not at all; throws Error where it cannot.
void write_machine_profile(const std::filesystem::path& file, const MachineProfile& profile);

/// A drafter's config on one line, in which equal drafters are equal: keys in order, `weights` as
/// an absolute path where it exists, there or in `folder`.
std::string drafter_text(const YamlTree& drafter, const std::filesystem::path& folder);

/// The machine that a profile has to be of.
struct MachineKind {
  std::string processor;
  int64_t cores = 0;
  std::string device = "cpu";
};

/// A model's profile as the source of what a user left open; remembers what was taken from it.
class ProfileDefaults {
 public:
  /// No defaults: there is no profile.
  ProfileDefaults() = default;
  /// Defaults of the model's profile, if there is one and it is of this machine. Throws as
  /// read_machine_profile does.
  ProfileDefaults(const std::filesystem::path& model, const MachineKind& machine,
                  const Components& components);

  /// dtype and kv_dtype; "" = none.
  std::string take_dtype();
  std::string take_kv_dtype();
  /// Threads for prefills and for decoding, unless the options or OMP_NUM_THREADS say how many.
  void take_threads(ModelOptions& options);
  /// The size of pages, unless the options choose a cache.
  void take_cache(ModelOptions& options, const Components& components);
  /// Takes dtype, kv_dtype, threads and cache where the options leave them open.
  void take_all(ModelOptions& options, const Components& components);
  /// The length of drafts with this drafter, whose paths are looked up in `folder` too.
  std::optional<int64_t> take_draft_length(const YamlTree& drafter,
                                           const std::filesystem::path& folder);

  /// What was taken, or why nothing is, in a sentence that begins with the file's path; "" where
  /// there is nothing to say.
  std::string text() const;

 private:
  void note(const std::string& taken);

  std::filesystem::path file_;
  MachineProfile values_;
  std::vector<std::string> taken_;
  std::string unused_;  ///< why the file is not used
};

}  // namespace specdec
