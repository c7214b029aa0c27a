#pragma once
#include <string>
#include <vector>

#include "core/families/description.h"
#include "core/formats/gguf/gguf.h"

namespace specdec {

/// The values of general.architecture that describe_gguf takes.
std::vector<std::string> gguf_architectures();

/// What a GGUF file's metadata and tensors say of its model, with llama.cpp's defaults for what the
/// format leaves out (Gemma's pattern of windows, local theta and query scale). Throws WeightsError
/// naming file and key: an architecture, rope type or expert count that is not supported.
ModelDescription describe_gguf(const GgufContent& file);

}  // namespace specdec
