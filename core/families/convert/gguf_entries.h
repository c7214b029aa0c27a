#pragma once
#include <string>
#include <vector>

#include "core/families/description.h"
#include "core/formats/gguf/gguf_writer.h"

namespace specdec {

/// The general.architecture of a family ("mistral" is "llama"). Throws WeightsError, naming
/// `where`, for a model that GGUF has none for.
std::string gguf_architecture(const ModelDescription& model, const std::string& where);

/// The metadata of a model but the tokenizer's, with llama.cpp's keys. Adds to `notes` what
/// llama.cpp does not go by: windows outside Gemma, a scale of the queries of its own.
GgufEntries gguf_entries(const ModelDescription& model, const std::string& where,
                         std::vector<std::string>& notes);

}  // namespace specdec
