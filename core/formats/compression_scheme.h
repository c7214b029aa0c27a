#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace specdec {

/// How a checkpoint of the library compressed-tensors, or of the method fp8, holds the weights of
/// its linear layers: codes, each times the scale of its part of the matrix.
struct CompressionScheme {
  /// What is stored in place of a weight.
  enum class Codes : uint8_t {
    kPacked,  ///< "weight_packed": integers of 4 or 8 bits in words of 32, the first one lowest
    kInt8,    ///< "weight", I8
    kFloat8   ///< "weight", F8_E4M3
  };
  Codes codes = Codes::kPacked;
  int64_t bits = 8;       ///< of a packed code
  bool symmetric = true;  ///< else a code's zero point is subtracted from it first
  /// Rows and columns of the parts that share a scale; 0 = all.
  int64_t rows_per_scale = 0;
  int64_t columns_per_scale = 0;

  bool operator==(const CompressionScheme&) const = default;
};

/// What the text of a config.json says in its quantization_config; nothing without one. How
/// activations and caches are rounded is left out: see left_out_roundings. Throws WeightsError
/// naming `where`, the key and what is not supported: another method, format, strategy or number of
/// bits, groups of layers with different schemes, sparse weights.
std::optional<CompressionScheme> parse_compression_scheme(const std::string& config,
                                                          const std::string& where);

/// What a reader should know of a text of which parse_compression_scheme makes a scheme: roundings
/// that it asks for and that are not done, a sentence each.
std::vector<std::string> left_out_roundings(const std::string& config, const std::string& where);

}  // namespace specdec
