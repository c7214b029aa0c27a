#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "grammar/tags/tag_threads.h"

namespace specdec {

/// True when the whole text may end at a place in free text.
bool may_end(const TagProgram& program, const TagThread& free);

/// The beginning of a short way to the end: bytes, or else a token; neither at the end.
struct TagCompletion {
  std::string bytes;
  std::optional<Token> token;
};

TagCompletion find_completion(const TagProgram& program, const std::vector<TagThread>& threads);

}  // namespace specdec
