#pragma once
#include <string>
#include <vector>

#include "grammar/tags/tag_threads.h"

namespace specdec {

/// What may come next, for people: a line a possibility.
std::string explain_tags(const TagProgram& program, const std::vector<TagThread>& threads);

}  // namespace specdec
