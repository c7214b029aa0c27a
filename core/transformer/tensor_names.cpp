#include "core/transformer/tensor_names.h"

namespace specdec {
namespace {

/// Plain; wrapped for other inputs, old and new; without the head, plain and wrapped.
constexpr TensorNames kTensorNames[] = {{"model.", ""},
                                        {"language_model.model.", "language_model."},
                                        {"model.language_model.", ""},
                                        {"", ""},
                                        {"language_model.", ""}};

}  // namespace

std::string full_name(const TensorNames& names, const std::string& name) {
  const std::string model = "model.";
  return name.rfind(model, 0) == 0 ? names.model + name.substr(model.size()) : names.other + name;
}

std::optional<TensorNames> find_names(const TensorFiles& checkpoint, const std::string& name) {
  for (const TensorNames& names : kTensorNames) {
    if (checkpoint.find(full_name(names, name)) != nullptr) {
      return names;
    }
  }
  return std::nullopt;
}

bool is_of_another_part(const std::string& name) {
  for (const char* part : {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.",
                           "multi_modal_projector.", "vision_model.", "rotary_emb.inv_freq"}) {
    if (name.find(part) != std::string::npos) {
      return true;
    }
  }
  return name.rfind("mtp.", 0) == 0;
}

std::string scales_name(const std::string& name) { return name + ".scales"; }

}  // namespace specdec
