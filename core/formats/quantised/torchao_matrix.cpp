#include "core/formats/quantised/torchao_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/quantised/torchao_description.h"

namespace specdec {
namespace {

using nlohmann::json;
using Codes = CompressionScheme::Codes;

/// How the names of a weight's parts go on behind its module's.
constexpr std::string_view kWeightPart = "._weight_";

}  // namespace

bool is_torchao(const CompressionScheme& scheme) {
  return scheme.codes >= Codes::kTorchao && scheme.codes <= Codes::kTorchaoTiles;
}

CompressionSchemes read_torchao(const JsonKeys& /*keys*/) {
  return CompressionScheme{.codes = Codes::kTorchao};
}

bool rounds_torchao_activations(const JsonKeys& keys) {
  // {"default": {"_type": "Int8DynamicActivationInt4WeightConfig", ...}}, or of older releases
  // "int8_dynamic_activation_int4_weight".
  std::string said = keys.has("quant_type") ? keys.at("quant_type").dump() : "";
  std::erase(said, '_');
  std::transform(said.begin(), said.end(), said.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return said.find("dynamicactivation") != std::string::npos ||
         said.find("staticactivation") != std::string::npos;
}

TorchaoMatrices describe_torchao(const TensorFiles& files) {
  TorchaoMatrices all;
  TorchaoParts parts;
  const auto refuse = [&](const std::string& name, const std::string& why) {
    all.read.erase(name);
    all.refused.emplace(name, why);
  };
  for (const auto& [name, text] : files.metadata()) {
    if (!text.starts_with('{')) {
      continue;  // "format", "tensor_names"
    }
    try {
      const json said = parse_json_object(
          text, fmt::format("{}: metadata of '{}'", files.folder().string(), name));
      if (said.value("_type", json()) != json("Tensor")) {
        all.read.emplace(name, read_torchao_matrix(files, name, said, parts));
      }
    } catch (const WeightsError& error) {
      refuse(name, error.what());
    }
  }
  const auto of_part = [&](const TensorEntry& entry, const char* problem) {
    return fmt::format("{}: tensor '{}' {}.", files.folder().string(), entry.name, problem);
  };
  for (const TensorEntry* entry : files.tensors()) {
    const std::string matrix = torchao_matrix_of(entry->name, all);
    if (all.read.contains(matrix) && !parts.names.contains(entry->name)) {
      refuse(matrix, of_part(*entry,
                             "is a part of a quantised matrix that is not known, so its values "
                             "would be others"));
    } else if (const size_t end = entry->name.find(kWeightPart);
               matrix.empty() && end != std::string::npos) {
      refuse(entry->name.substr(0, end) + ".weight",
             of_part(*entry,
                     "is a part of a matrix of torchao that the file's header does not "
                     "describe: write the file again with its metadata, or take the "
                     "original one"));
    }
  }
  all.rounds_activations = parts.rounds_activations;
  return all;
}

std::string torchao_matrix_of(const std::string& part, const TorchaoMatrices& matrices) {
  const size_t leaf = part.rfind('.') + 1;  // npos + 1 = 0
  if (leaf == part.size() || part[leaf] != '_') {
    return "";
  }
  for (size_t end = leaf + 1; (end = part.find('_', end)) != std::string::npos; ++end) {
    std::string matrix = part.substr(0, leaf) + part.substr(leaf + 1, end - leaf - 1);
    if (matrices.read.contains(matrix) || matrices.refused.contains(matrix)) {
      return matrix;
    }
  }
  return "";
}

}  // namespace specdec
