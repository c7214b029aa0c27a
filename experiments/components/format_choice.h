#pragma once
#include <optional>
#include <string>
#include <vector>

namespace specdec {

class ConfigNode;
struct ModelOptions;
struct OptionHelp;

/// Formats that a draft model has of its own, as ModelOptions names them; nullopt = the target's.
struct FormatChoice {
  std::optional<std::string> dtype = {};
  std::optional<std::string> activations = {};
  std::optional<std::string> kv_dtype = {};

  bool is_given() const { return dtype || activations || kv_dtype; }
  /// `target` with these. Beside a float32 target whose kv_dtype is another one, a model in float64
  /// keeps its keys and values in float64.
  ModelOptions over(ModelOptions target) const;
  /// The formats that are given, in words, such as "dtype int8, kv_dtype bfloat16"; "" = none.
  std::string text() const;
};

/// The keys dtype, activations and kv_dtype of a draft model.
FormatChoice read_format_choice(const ConfigNode& drafter);
/// What `specdec list` says of them.
std::vector<OptionHelp> format_choice_help();

/// Notes as mistakes of `node`'s keys dtype and kv_dtype unknown names, and those that rule each
/// other out or the format of the options' cache.
void check_formats(const ConfigNode& node, const ModelOptions& options);
/// Notes as a mistake of `node`'s key dtype or activations what the options' device rules out of
/// formats that are given there; nullopt = they are another's.
void check_device_formats(const ConfigNode& node, const FormatChoice& given,
                          const ModelOptions& options);

}  // namespace specdec
