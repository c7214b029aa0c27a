#pragma once
#include <string>

namespace specdec {

/// What a model_type or a GGUF architecture that is not supported is, as " (Gemma 3n, ...)": "" for
/// one of which nothing is known.
std::string unsupported_family(const std::string& type);

}  // namespace specdec
