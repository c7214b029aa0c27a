#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/formats/atomic_file.h"
#include "core/prefix_store.h"
#include "core/randomness.h"
#include "core/sampling.h"
#include "decoders/decoding_strategy.h"

namespace specdec {

/// A generation between two of its steps, as it can be kept in a file and go on later: by
/// Request::resumed, with the cache in a PrefixStore. Randomness is counted by position and the
/// grammar's place is that after the output, so neither needs more than is here.
struct GenerationState {
  std::string model;  ///< what the user called it, for messages
  std::vector<Token> prompt;
  std::vector<Token> output;
  SamplingParams sampling;
  // Key of the CounterRandomness.
  uint64_t seed = 0;
  uint32_t prompt_number = 0;
  uint32_t repeat = 0;
  std::string grammar;     ///< names the grammar of the output; "" = none
  std::string cache = {};  ///< dtype and cache that the user asked for, for messages; "" = neither
  /// Keys and values of the text's first tokens; without a snapshot, none.
  CachedPrefix cached;

  /// Prompt and output.
  std::vector<Token> text() const;
  CounterRandomness randomness() const { return CounterRandomness(seed, prompt_number, repeat); }
};

/// Keys and values of a state's text, as row 0 of the target has them after the generation; of a
/// target without snapshots none.
void keep_cache(GenerationState& state, LanguageModel& target);
/// Throws SnapshotModelError where the target is not the one of the state: see KvSnapshots::kv_key.
void check_target(const GenerationState& state, LanguageModel& target);

/// Writes a state: a checked blob, format 2, that appears whole or not at all. Throws Error where
/// the file cannot be written.
void write_state(const GenerationState& state, const std::filesystem::path& file);
/// Writes a state into a file that is open already, and commits it.
void write_state(const GenerationState& state, AtomicFile& file);
/// The bytes of the file.
std::string state_bytes(const GenerationState& state);
/// Reads a state. Throws SnapshotVersionError and SnapshotDamagedError (see parse_blob), and
/// WeightsError where the file cannot be read.
GenerationState read_state(const std::filesystem::path& file);
/// Reads a state from bytes, with the errors of read_state; `file` is their name in messages.
GenerationState parse_state(std::span<const std::byte> bytes, const std::string& file);

}  // namespace specdec
