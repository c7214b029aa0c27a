#include "core/families/unsupported_models.h"

#include <algorithm>
#include <iterator>

namespace specdec {
namespace {

constexpr const char* kAssistant =
    "Gemma 4's MTP drafter, no model by itself: name it as "
    "drafter: {type: gemma4_assistant, weights: FOLDER or GGUF file} of its target";
constexpr const char* kEncoderDecoder =
    "an encoder and a decoder; models here have a decoder alone";

struct KnownType {
  const char* name;
  const char* what;
};

constexpr KnownType kKnownTypes[] = {
    {"gemma4_assistant", kAssistant},
    {"gemma4_unified_assistant", kAssistant},
    {"gemma4-assistant", kAssistant},
    {"diffusion_gemma", "it writes blocks of text by diffusion, not token after token"},
    {"paligemma", "its prompts see themselves in both directions, and begin with an image"},
    {"recurrentgemma", "Griffin: GGUF files of it are not read; name the folder of the hub"},
    {"shieldgemma2", "it classifies images; a text model of that name has model_type gemma2"},
    {"t5gemma", kEncoderDecoder},
    {"t5gemma2", kEncoderDecoder},
};

}  // namespace

std::string unsupported_family(const std::string& type) {
  const auto* const known = std::find_if(std::begin(kKnownTypes), std::end(kKnownTypes),
                                         [&](const KnownType& k) { return type == k.name; });
  return known == std::end(kKnownTypes) ? "" : std::string(" (") + known->what + ")";
}

}  // namespace specdec
