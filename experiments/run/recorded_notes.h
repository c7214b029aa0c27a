#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "experiments/metrics/generation_record.h"

namespace specdec {

/// The environment.json of a run's folder; an empty object where there is none.
nlohmann::json recorded_environment(const std::filesystem::path& folder);

/// "the machine was busy: ... Its times are noisy.", by other load while the records were measured,
/// which intervals do not tell; "" for a quiet machine.
std::string load_note(const std::filesystem::path& folder,
                      std::span<const GenerationRecord> records);

/// "FOLDER has loops: cut; ...", for figures of whole texts where the run's own report leaves loops
/// out; "" for a run that keeps them. Throws ConfigError for a config.yaml that cannot be read.
std::string whole_texts_note(const std::filesystem::path& folder);

/// trace.width of the run's config.yaml; 0 = not known. Throws as whole_texts_note.
int64_t recorded_trace_width(const std::filesystem::path& folder);

}  // namespace specdec
