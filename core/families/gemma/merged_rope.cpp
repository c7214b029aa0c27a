#include "core/families/gemma/merged_rope.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/formats/json_keys.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

constexpr const char* kScaling = "rope_scaling";

/// transformers 4 takes the type of rope_scaling, transformers 5 that of rope_parameters.
void refuse_other_type(const JsonKeys& entry, const JsonKeys& scaling) {
  if (scaling.has("type") && !scaling.has("rope_type") && rope_type(entry) != rope_type(scaling)) {
    scaling.fail("type",
                 fmt::format("is '{}', but rope_parameters gives full layers the rope_type '{}'; "
                             "remove the wrong one",
                             rope_type(scaling), rope_type(entry)));
  }
}

}  // namespace

void merge_rope_scaling(nlohmann::json& config, const std::string& where) {
  const nlohmann::json& entry =
      json_member(json_member(config, "rope_parameters"), "full_attention");
  const nlohmann::json& scaling = json_member(config, kScaling);
  if (!entry.is_object() || !scaling.is_object() || scaling.empty()) {
    return;
  }
  refuse_other_type(JsonKeys(entry, where + ": rope_parameters: full_attention"),
                    JsonKeys(scaling, where + ": " + kScaling));
  nlohmann::json merged = entry;
  merged.update(scaling);
  config[kScaling] = std::move(merged);
  config["rope_parameters"].erase("full_attention");
}

}  // namespace specdec
