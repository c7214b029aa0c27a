#include "core/formats/quantised/torchao_description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/formats/quantised/matrix_checks.h"
#include "core/formats/quantised/torchao_codes.h"

namespace specdec {
namespace {

using nlohmann::json;
using Codes = CompressionScheme::Codes;

/// Parts that activations are rounded with, which is left out.
constexpr const char* kRoundings[] = {"act_quant_scale", "act_quant_zero_point",
                                      "output_quant_scale"};

/// Attributes of a matrix that say that its inputs are rounded, unless they are null.
constexpr const char* kInputRoundings[] = {"act_quant_kwargs", "activation_quantization"};

/// "module.weight" -> "module._weight_".
std::string part_prefix(const std::string& name) {
  const size_t begin = name.rfind('.') + 1;  // npos + 1 = 0
  return name.substr(0, begin) + "_" + name.substr(begin) + "_";
}

/// Complaints name the folder and the matrix.
class TorchaoReader {
 public:
  TorchaoReader(const TensorFiles& files, const std::string& name, const json& said,
                TorchaoParts& parts)
      : files_(files),
        name_(name),
        parts_(parts),
        prefix_(part_prefix(name)),
        said_(&said),
        data_(&said) {}

  CompressedMatrix read() {
    enter();
    if (type() == "LinearActivationQuantizedTensor") {
      parts_.rounds_activations = true;
      enter_part("original_weight_tensor");
    }
    if (type() == "AffineQuantizedTensor") {
      affine_ = data_;
      enter_part("tensor_impl");
    }
    class_ = find_class();
    for (const char* rounding : kInputRoundings) {
      parts_.rounds_activations |= !data_->value(rounding, json()).is_null();
    }
    matrix_.scheme.codes = class_.codes;
    matrix_.codes = part(class_.codes_part);
    matrix_.scales = part(class_.scales_part);
    if (matrix_.codes == nullptr) {
      fail(fmt::format("has no '{}{}' beside it", prefix_, class_.codes_part));
    }
    if (data_->is_object() && data_->value("transposed", json(false)) == json(true)) {
      fail("is stored transposed, which is not supported");
    }
    read_sizes();
    MatrixChecks(files_, matrix_).require_size();
    switch (class_.codes) {
      case Codes::kFloat8:
        check_codes({DType::kF8E4M3}, {matrix_.rows, matrix_.columns});
        check_scales({matrix_.scale_rows(), matrix_.scale_columns()});
        break;
      case Codes::kTorchaoBytes:
        read_bytes();
        break;
      case Codes::kTorchaoPairs:
        read_pairs();
        break;
      default:
        read_tiles();
        break;
    }
    read_factors();
    require_known_parts();
    return matrix_;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw WeightsError(
        fmt::format("{}: tensor '{}' {}.", files_.folder().string(), name_, problem));
  }

  std::string type() const {
    const auto found = said_->find("_type");
    return found != said_->end() && found->is_string() ? found->get<std::string>() : "unknown";
  }

  /// Goes on with the attributes of said_.
  void enter() {
    const auto found = said_->is_object() ? said_->find("_data") : said_->end();
    if (found == said_->end() || !found->is_object()) {
      fail("is described by no JSON object with _type and _data");
    }
    data_ = &*found;
    for (const char* rounding : kRoundings) {
      parts_.names.insert(prefix_ + rounding);
    }
  }

  /// Throws where said_ has a part that changes values in a way that is not known.
  void require_known_parts() const {
    for (const json& one : said_->value("_tensor_data_names", json::array())) {
      if (one.is_string() && !parts_.names.contains(prefix_ + one.get<std::string>())) {
        fail(fmt::format("is a {} with the part {}, which is not supported", type(), one.dump()));
      }
    }
  }

  void enter_part(const char* attribute) {
    require_known_parts();
    const auto found = data_->find(attribute);
    if (found == data_->end() || !found->is_object()) {
      fail(fmt::format("is a {} without '{}'", type(), attribute));
    }
    said_ = &*found;
    prefix_ += std::string(attribute) + "_";
    enter();
  }

  TorchaoClass find_class() const {
    std::vector<std::string_view> known;
    for (const TorchaoClass& one : kTorchaoClasses) {
      const bool is_layout = std::string_view(one.name).ends_with("Impl");
      if (type() == one.name && is_layout == (affine_ != nullptr)) {
        return one;
      }
      known.emplace_back(one.name);
    }
    fail(fmt::format(
        "is of torchao's class {}{}, which is not supported; known: {}. Quantise the "
        "original checkpoint with a config of these, or use it as it is",
        affine_ != nullptr ? "AffineQuantizedTensor with " : "", type(), fmt::join(known, ", ")));
  }

  const TensorEntry* part(const std::string& end) {
    return files_.find(*parts_.names.insert(prefix_ + end).first);
  }

  const json& attributes() const { return affine_ != nullptr ? *affine_ : *data_; }

  /// Natural numbers under a key of the tensor's own attributes, or its wrapper's.
  std::optional<std::vector<int64_t>> sizes(const char* key) const {
    const auto found = attributes().find(key);
    if (found == attributes().end() || found->is_null()) {
      return std::nullopt;
    }
    std::vector<int64_t> numbers;
    for (const json& one : found->is_array() ? *found : json::array()) {
      if (!one.is_number_integer() || one < 0 || one > kMaxMatrixSize) {
        numbers.clear();
        break;
      }
      numbers.push_back(one.get<int64_t>());
    }
    if (numbers.size() != 2) {
      fail(fmt::format("has the {} {}; two numbers up to {} are supported, those of a matrix", key,
                       found->dump(), kMaxMatrixSize));
    }
    return numbers;
  }

  /// The rows and columns that share a scale.
  std::vector<int64_t> read_block() const {
    const bool is_float8 = class_.codes == Codes::kFloat8;
    if (is_float8 && attributes().value("block_size", json()) == json::array()) {
      return {matrix_.rows, matrix_.columns};
    }
    const auto said = sizes("block_size");
    if (said && said->front() > 0 && said->back() > 0) {
      return *said;
    }
    if (said) {
      fail(fmt::format(
          "has the block_size [{}]: the rows and columns that share a scale are above 0",
          fmt::join(*said, ", ")));
    }
    if (!is_float8 || matrix_.scales == nullptr) {
      fail("has no block_size, the rows and columns that share a scale");
    }
    const bool one =
        matrix_.scales->bytes.size() == static_cast<size_t>(dtype_bytes(matrix_.scales->dtype));
    return {one ? matrix_.rows : 1, matrix_.columns};
  }

  /// The shape, and the part of a row that shares a scale.
  void read_sizes() {
    const bool packed =
        class_.codes == Codes::kTorchaoPairs || class_.codes == Codes::kTorchaoTiles;
    std::vector<int64_t> shape = matrix_.codes->shape;
    if (packed || affine_ != nullptr) {
      const auto said = sizes("shape");
      if (!said) {
        fail("has no shape");
      }
      shape = *said;
    }
    if (shape.size() != 2) {
      fail(fmt::format("has shape [{}]; matrices alone are supported", fmt::join(shape, ", ")));
    }
    matrix_.rows = shape[0];
    matrix_.columns = shape[1];
    const std::vector<int64_t> block = read_block();
    CompressionScheme& scheme = matrix_.scheme;
    scheme.rows_per_scale = block[0] >= matrix_.rows ? 0 : block[0];
    scheme.columns_per_scale = block[1] >= matrix_.columns ? 0 : block[1];
    if (packed && block[0] != 1) {
      fail(fmt::format("shares scales among {} rows, which is not supported", block[0]));
    }
    scheme.rows_per_scale = packed ? 1 : scheme.rows_per_scale;
    group_ = block[1];
  }

  void check_codes(const std::vector<DType>& types, const std::vector<int64_t>& shape) const {
    const MatrixChecks checks(files_, matrix_);
    checks.require_type(*matrix_.codes, types);
    if (matrix_.codes->shape != shape) {
      checks.fail(*matrix_.codes,
                  fmt::format("has shape [{}], but for a matrix [{}, {}] it should be [{}]",
                              fmt::join(matrix_.codes->shape, ", "), matrix_.rows, matrix_.columns,
                              fmt::join(shape, ", ")));
    }
  }

  void check_scales(const std::vector<int64_t>& shape) const {
    const MatrixChecks checks(files_, matrix_);
    checks.require(matrix_.scales, class_.scales_part, shape);
    checks.require_type(*matrix_.scales, {DType::kF32, DType::kF16, DType::kBF16});
  }

  void read_bytes() {
    CompressionScheme& scheme = matrix_.scheme;
    check_codes({DType::kI8}, {matrix_.rows, matrix_.columns});
    check_scales({matrix_.scale_rows(), matrix_.scale_columns()});
    scheme.bits = code_bits() <= 4 ? 4 : 8;
    matrix_.zeros = part("zero_point");
    read_zeros();
    if (scheme.bits == 8 && (matrix_.zeros == nullptr || matrix_.zeros->dtype == DType::kI8)) {
      scheme.codes = Codes::kInt8;
    }
  }

  void read_zeros() {
    if (matrix_.zeros == nullptr) {
      return;
    }
    CompressionScheme& scheme = matrix_.scheme;
    const MatrixChecks checks(files_, matrix_);
    checks.require(matrix_.zeros, "zero_point", {matrix_.scale_rows(), matrix_.scale_columns()});
    checks.require_type(*matrix_.zeros, {DType::kI8, DType::kI32, DType::kI64, DType::kF32,
                                         DType::kF16, DType::kBF16});
    const std::vector<float> zeros = torchao_zero_points(*matrix_.zeros);
    const float half = std::ldexp(1.0F, static_cast<int>(scheme.bits) - 1);
    for (const float zero : zeros) {
      if (!(zero >= -half && zero < half) || zero != std::trunc(zero)) {
        checks.fail(*matrix_.zeros, fmt::format("holds {}; zero points are integers of {} bits",
                                                zero, scheme.bits));
      }
    }
    const bool all_zero =
        std::all_of(zeros.begin(), zeros.end(), [](float zero) { return zero == 0.0F; });
    scheme.symmetric = all_zero;
    matrix_.zeros = all_zero ? nullptr : matrix_.zeros;
  }

  /// Bits of codes that lie in a byte each, by their type or range.
  int64_t code_bits() const {
    const auto type = data_->find("target_dtype");
    if (type != data_->end() && type->is_object()) {
      const json said = type->value("_data", json());
      const std::string name = said.is_string() ? said.get<std::string>() : "";
      if (name.size() == 4 && name.starts_with("int") && name[3] >= '1' && name[3] <= '8') {
        return name[3] - '0';
      }
      fail(fmt::format("has the target_dtype {}; known: int1 to int8", type->dump()));
    }
    if (affine_ == nullptr) {
      return 8;
    }
    if (has_float_domain()) {
      fail(
          "has zero points that are no codes (ZeroPointDomain.FLOAT), which is supported in "
          "Int4TilePackedTo4dTensor and TensorCoreTiledLayout only");
    }
    const json least = affine_->value("quant_min", json());
    const json most = affine_->value("quant_max", json());
    return least.is_number() && most.is_number() && least >= -8 && most <= 7 ? 4 : 8;
  }

  /// Whether zero points are weights, not codes (ZeroPointDomain of torchao).
  bool has_float_domain() const {
    const auto domain = affine_->find("zero_point_domain");
    return domain != affine_->end() && domain->is_object() &&
           domain->value("_data", json()) == json(kFloatDomain);
  }

  void read_pairs() {
    matrix_.scheme.bits = 4;
    matrix_.scheme.centred = true;
    matrix_.scheme.symmetric = false;
    if (matrix_.columns % 2 != 0) {
      fail(fmt::format("has rows of {} inputs, which are no pairs", matrix_.columns));
    }
    check_codes({DType::kI8, DType::kU8}, {matrix_.rows, matrix_.columns / 2});
    const std::vector<int64_t> groups = {matrix_.scale_columns(), matrix_.rows};
    check_scales(groups);
    matrix_.minima = part("zero_point");
    const MatrixChecks checks(files_, matrix_);
    checks.require(matrix_.minima, "zero_point", groups);
    checks.require_type(*matrix_.minima, {DType::kF32, DType::kF16, DType::kBF16});
  }

  void read_tiles() {
    if (affine_ != nullptr && !has_float_domain()) {
      fail("has tiles with zero points that are codes, which is not supported");
    }
    matrix_.scheme.bits = 4;
    matrix_.scheme.centred = true;
    matrix_.scheme.symmetric = false;
    const std::vector<int64_t>& shape = matrix_.codes->shape;
    const bool fits = shape.size() == 4 && matrix_.codes->dtype == DType::kI32 &&
                      shape[0] == (matrix_.rows + TorchaoTiles::kRows - 1) / TorchaoTiles::kRows &&
                      shape[2] == TorchaoTiles::kLanes &&
                      (shape[3] == 1 || shape[3] == 2 || shape[3] == 4) && shape[1] > 0 &&
                      shape[1] <= kMaxMatrixSize &&
                      shape[1] * shape[3] * 2 * TorchaoTiles::kColumns >= matrix_.columns;
    if (!fits) {
      fail_tensor(
          files_, *matrix_.codes,
          fmt::format("has shape [{}] and dtype {}, not those of tiles of a matrix [{}, {}]",
                      fmt::join(shape, ", "), dtype_name(matrix_.codes->dtype), matrix_.rows,
                      matrix_.columns));
    }
    const int64_t columns = shape[1] * shape[3] * 2 * TorchaoTiles::kColumns;
    check_scales({(columns + group_ - 1) / group_, shape[0] * TorchaoTiles::kRows, 2});
    matrix_.minima = matrix_.scales;
  }

  /// Reads the factors of inputs that are scaled before the product.
  void read_factors() {
    matrix_.factors = part("act_pre_scale");
    if (matrix_.factors != nullptr) {
      const MatrixChecks checks(files_, matrix_);
      const bool one =
          matrix_.factors->bytes.size() == static_cast<size_t>(dtype_bytes(matrix_.factors->dtype));
      if (one) {
        checks.fail(*matrix_.factors, "is one number for all inputs, which is not supported");
      }
      checks.require(matrix_.factors, "act_pre_scale", {matrix_.columns});
      checks.require_type(*matrix_.factors, {DType::kF32, DType::kF16, DType::kBF16});
    }
  }

  static constexpr int kFloatDomain = 2;

  const TensorFiles& files_;
  const std::string& name_;
  TorchaoParts& parts_;
  std::string prefix_;            ///< of the parts' names
  const json* said_;              ///< what is said of the tensor, or of the one within it
  const json* data_;              ///< its attributes
  const json* affine_ = nullptr;  ///< those of an AffineQuantizedTensor around the layout
  TorchaoClass class_ = kTorchaoClasses[0];
  CompressedMatrix matrix_;
  int64_t group_ = 0;  ///< inputs that share a scale
};

}  // namespace

CompressedMatrix read_torchao_matrix(const TensorFiles& files, const std::string& name,
                                     const json& said, TorchaoParts& parts) {
  return TorchaoReader(files, name, said, parts).read();
}

}  // namespace specdec
