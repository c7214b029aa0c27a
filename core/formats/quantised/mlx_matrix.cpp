#include "core/formats/quantised/mlx_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/formats/json_keys.h"
#include "core/formats/quantised/matrix_checks.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

constexpr int64_t kMlxWordBits = 32;
constexpr const char* kMlxKey = "quantization";

/// A mode, whose bits and inputs of a group are its defaults and, where codes are floats without
/// biases, the only ones.
struct Mode {
  const char* name;
  int64_t bits, group;
  Codes codes;
  bool float8_scales;
};
constexpr Mode kModes[] = {{"affine", 4, 64, Codes::kMlx, false},
                           {"mxfp4", 4, 32, Codes::kMlxFloat4, false},
                           {"mxfp8", 8, 32, Codes::kMlxFloat8, false},
                           {"nvfp4", 4, 16, Codes::kMlxFloat4, true}};

/// Scheme of a module, or of all modules that have none of their own.
CompressionScheme read_mlx_scheme(const JsonKeys& keys) {
  CompressionScheme scheme{.codes = Codes::kMlx, .symmetric = false, .rows_per_scale = 1};
  const std::string mode = keys.text("mode", "affine");
  const Mode* known = std::find_if(std::begin(kModes), std::end(kModes),
                                   [&](const Mode& one) { return mode == one.name; });
  if (known == std::end(kModes)) {
    keys.fail("mode", fmt::format("is '{}', which is not supported; known: affine, mxfp4, mxfp8, "
                                  "nvfp4",
                                  mode));
  }
  scheme.codes = known->codes;
  scheme.float8_scales = known->float8_scales;
  scheme.bits = keys.positive("bits", known->bits);
  scheme.columns_per_scale = keys.positive("group_size", known->group);
  if (scheme.codes != Codes::kMlx) {
    if (scheme.bits != known->bits || scheme.columns_per_scale != known->group) {
      keys.fail("mode",
                fmt::format("is '{}', which has {} bits and groups of {}, not {} and {}", mode,
                            known->bits, known->group, scheme.bits, scheme.columns_per_scale));
    }
    return scheme;
  }
  if (scheme.bits < 2 || scheme.bits > 8 || scheme.bits == 7) {
    keys.fail("bits",
              fmt::format("is {}, which is not supported; known: 2, 3, 4, 5, 6, 8", scheme.bits));
  }
  return scheme;
}

/// Whether a key is the name of a module, and none that speaks of all.
bool is_module(const std::string& key) { return key.find('.') != std::string::npos; }

/// What is said of one module. A mistake counts where the module is read.
CompressionScheme read_module_scheme(const JsonKeys& keys, const std::string& module) {
  const nlohmann::json& said = keys.at(module.c_str());
  try {
    if (!said.is_object()) {
      keys.fail(module.c_str(),
                fmt::format("is {}, but should be an object with a module's bits and group_size, "
                            "true or false",
                            describe_json(said)));
    }
    return read_mlx_scheme(keys.object(module.c_str()));
  } catch (const WeightsError& error) {
    return {.codes = Codes::kMlx, .mistake = error.what()};
  }
}

/// Throws WeightsError where rows of so many words and groups have other bits or groups than
/// config.json says, and there are some that they fit.
void check_mlx_sizes(const MatrixChecks& checks, const CompressedMatrix& matrix) {
  if (matrix.scales == nullptr || matrix.scales->shape.size() != matrix.codes->shape.size()) {
    return;  // which check_mlx names
  }
  const int64_t words = matrix.codes->shape.back();
  const int64_t groups = matrix.scales->shape.back();
  if (std::max(words, groups) > kMaxMatrixSize) {
    return;  // which describe_mlx and check_mlx name
  }
  const CompressionScheme& said = matrix.scheme;
  std::vector<std::string> fitting;
  for (const int64_t group : {16, 32, 64, 128}) {
    for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
      if (groups * group * bits == words * kMlxWordBits) {
        fitting.push_back(fmt::format("{} x {}", bits, group));
      }
    }
  }
  if (!fitting.empty() && groups * said.columns_per_scale * said.bits != words * kMlxWordBits) {
    checks.fail(
        *matrix.codes,
        fmt::format("has rows of {} words beside {} scales, which bits x group_size of "
                    "config.json's quantization, {} x {}, do not fit: {} would",
                    words, groups, said.bits, said.columns_per_scale, fmt::join(fitting, " or ")));
  }
}

/// Scales, and biases where there are some.
void check_mlx(const MatrixChecks& checks, const CompressedMatrix& matrix) {
  checks.require_size();
  checks.require(matrix.scales, "scales", {matrix.rows, matrix.scale_columns()});
  if (matrix.scheme.codes != Codes::kMlx) {
    return checks.require_type(*matrix.scales, {DType::kU8});
  }
  checks.require(matrix.minima, "biases", {matrix.rows, matrix.scale_columns()});
  for (const TensorEntry* entry : {matrix.scales, matrix.minima}) {
    checks.require_type(*entry, {DType::kF32, DType::kF16, DType::kBF16});
  }
}

}  // namespace

bool is_mlx_config(const JsonKeys& top) {
  return top.has(kMlxKey) && top.at(kMlxKey).is_object() &&
         (top.object(kMlxKey).has("bits") || top.object(kMlxKey).has("group_size"));
}

CompressionSchemes read_mlx(const JsonKeys& keys) {
  for (const char* key : {"bits", "group_size"}) {  // of which modules have defaults
    (void)keys.positive(key);
  }
  std::vector<CompressionSchemes::Group> groups = {{{ModulePattern("re:")}, read_mlx_scheme(keys)}};
  for (const std::string& name : keys.names()) {
    if (!keys.has(name.c_str())) {
      continue;
    }
    const nlohmann::json& said = keys.at(name.c_str());
    // true: as others; false: as it was.
    if (said.is_object() || (is_module(name) && !said.is_boolean())) {
      groups.push_back({{ModulePattern(name)}, read_module_scheme(keys, name)});
    }
  }
  return CompressionSchemes(std::move(groups));
}

bool is_mlx(const CompressionScheme& scheme) {
  return scheme.codes == Codes::kMlx || scheme.codes == Codes::kMlxFloat4 ||
         scheme.codes == Codes::kMlxFloat8;
}

CompressedMatrix describe_mlx(const TensorFiles& files, const TensorEntry& codes,
                              const std::string& module, const CompressionScheme& scheme) {
  CompressedMatrix matrix;
  matrix.scheme = scheme;
  matrix.codes = &codes;
  matrix.scales = files.find(module + ".scales");
  matrix.minima = scheme.codes == Codes::kMlx ? files.find(module + ".biases") : nullptr;
  const MatrixChecks checks(files, matrix);
  std::vector<int64_t> shape = codes.shape;
  if (shape.size() == 3 && shape.front() > 0) {
    matrix.stacked = shape.front();
    shape.erase(shape.begin());
  }
  if (shape.size() != 2) {
    checks.fail(codes, "should have two dimensions, or three in a stack of experts' matrices");
  }
  if (scheme.codes == Codes::kMlx) {
    check_mlx_sizes(checks, matrix);
  }
  if (shape[1] > kMaxMatrixSize || shape[1] * kMlxWordBits % scheme.bits != 0) {
    checks.fail(codes, fmt::format("has rows of {} words, which do not hold codes of {} bits",
                                   shape[1], scheme.bits));
  }
  matrix.rows = shape[0];
  matrix.columns = shape[1] * kMlxWordBits / scheme.bits;
  if (matrix.columns % scheme.columns_per_scale != 0) {
    checks.fail(codes, fmt::format("has rows of {} inputs, which are no whole groups of {}",
                                   matrix.columns, scheme.columns_per_scale));
  }
  check_mlx(checks, matrix);
  if (scheme.codes != Codes::kMlx) {  // the bytes of words are pairs, or codes
    matrix.scheme.codes = scheme.codes == Codes::kMlxFloat4 ? Codes::kFloat4 : Codes::kFloat8;
  }
  return matrix;
}

}  // namespace specdec
