#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/formats/atomic_file.h"
#include "decoders/generation_state.h"
#include "experiments/grammar/grammar_config.h"

namespace specdec {

/// Names a grammar that --grammar gives, for states of generations: another name for another text;
/// "" for none.
std::string grammar_name(const std::optional<GrammarConfig>& grammar,
                         const std::optional<std::string>& argument);

struct GlobalFlags;
/// The flags that decide what the cache of a generation holds, as they were given; "" = none.
std::string asked_text(const GlobalFlags& flags);

/// Reads the state that --resume names. Throws ConfigError where it was generated under another
/// grammar than `grammar`.
GenerationState load_state(const std::string& file, const std::string& grammar);

/// Throws ConfigError where the file of --save-state is there and holds something else than a
/// state, which is not overwritten. "" = none.
void check_state_output(const std::string& file);

/// Throws ConfigError for a strategy that neither goes on with an output nor leaves one to go on
/// with.
void check_can_resume(const DecodingStrategy& strategy);

/// Where keys and values are kept: those of a state that was read, which they are taken from, and
/// of earlier samples, as far as `cache_mb` goes; nullptr = nowhere. Throws SnapshotModelError for
/// a state of another model.
std::unique_ptr<PrefixStore> known_prefixes(int64_t cache_mb, GenerationState& state,
                                            LanguageModel& target);

/// A --save-state file that is written when the generation has ended or was interrupted.
class StateSaver {
 public:
  /// `file`: "" = nothing is saved. Throws Error where it cannot be written. Borrows the others.
  StateSaver(const std::string& file, GenerationState& state, LanguageModel& target);
  bool is_wanted() const { return file_.has_value(); }
  /// Callback that adds tokens to the state's output, where it is saved.
  std::function<void(TokenSpan)> collector();
  void save();

 private:
  std::optional<AtomicFile> file_;
  GenerationState& state_;
  LanguageModel& target_;
};

}  // namespace specdec
