#include "core/families/unsupported_models.h"

#include <algorithm>
#include <iterator>

namespace specdec {

std::string unsupported_family(const std::string& type) {
  constexpr const char* kAssistants[] = {"gemma4_assistant", "gemma4_unified_assistant",
                                         "gemma4-assistant"};
  return std::find(std::begin(kAssistants), std::end(kAssistants), type) != std::end(kAssistants)
             ? " (Gemma 4's MTP drafter, no model by itself: name it as "
               "drafter: {type: gemma4_assistant, weights: FOLDER or GGUF file} of its target)"
             : "";
}

}  // namespace specdec
