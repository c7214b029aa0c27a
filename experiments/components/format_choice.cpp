#include "experiments/components/format_choice.h"

#include <fmt/format.h>

#include <utility>

#include "experiments/components/model_options.h"
#include "experiments/config/config_node.h"
#include "experiments/config/option_table.h"

namespace specdec {

ModelOptions FormatChoice::over(ModelOptions target) const {
  if (dtype == "float64" && target.dtype != "float64") {
    target.kv_dtype.clear();
  }
  target.dtype = dtype.value_or(std::move(target.dtype));
  target.activations = activations.value_or(std::move(target.activations));
  target.kv_dtype = kv_dtype.value_or(std::move(target.kv_dtype));
  return target;
}

std::string FormatChoice::text() const {
  std::string text;
  const auto add = [&text](const char* name, const std::optional<std::string>& value) {
    if (value) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
    }
  };
  add("dtype", dtype);
  add("activations", activations);
  add("kv_dtype", kv_dtype);
  return text;
}

FormatChoice read_format_choice(const ConfigNode& drafter) {
  return {.dtype = drafter.find<std::string>("dtype"),
          .activations = drafter.find<std::string>("activations"),
          .kv_dtype = drafter.find<std::string>("kv_dtype")};
}

std::vector<OptionHelp> format_choice_help() {
  return {{"dtype", "as the target's", "stored, float32, float64, bfloat16, float16 or int8",
           "how its weights lie in memory: the output stays the target's"},
          {"activations", "as the target's", "float32 or int8",
           "int8 rounds the inputs of its products, for weights in blocks"},
          {"kv_dtype", "as the target's", "float32 or bfloat16", "of its keys and values"}};
}

void check_formats(const ConfigNode& node, const ModelOptions& options) {
  note_error(node, "dtype", [&] { (void)parse_dtype(options.dtype); });
  note_error(node, "kv_dtype", [&] {
    (void)kv_format_of(options);
    if (parse_kv_dtype(options.kv_dtype) != KvFormat::kNative && options.dtype == "float64") {
      node.fail("kv_dtype", fmt::format("{} needs float32 activations, but dtype is float64; leave "
                                        "kv_dtype out, or choose another dtype",
                                        options.kv_dtype));
    }
  });
}

void check_device_formats(const ConfigNode& node, const FormatChoice& given,
                          const ModelOptions& options) {
  const bool by_dtype = options.dtype == "float64";
  if ((by_dtype ? given.dtype : given.activations)) {
    note_error(node, by_dtype ? "dtype" : "activations", [&] { check_device(options); });
  }
}

}  // namespace specdec
