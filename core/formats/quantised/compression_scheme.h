#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/quantised/module_pattern.h"

namespace specdec {

class JsonKeys;

/// How a quantised checkpoint (compressed-tensors, fp8, modelopt, GPTQ, AWQ, bitsandbytes, MLX,
/// torchao)
/// holds the weights of its linear layers: codes, each times the scale of its part of the matrix.
struct CompressionScheme {
  /// What is stored in place of a weight.
  enum class Codes : uint8_t {
    kPacked,  ///< "weight_packed": integers of 2, 4 or 8 bits in words of 32, the first one lowest
    kInt8,    ///< "weight", I8
    kFloat8,  ///< "weight", F8_E4M3
    /// "weight_packed" or "weight", U8: floats of 4 bits (E2M1) in pairs, the first one lowest. The
    /// scales are F8_E4M3 beside a scale of the whole matrix (NVFP4), or powers of two (MXFP4).
    kFloat4,
    kGptq,          ///< "qweight": see core/formats/quantised/column_packed.h
    kAwq,           ///< the same, packed otherwise
    kBlocks4,       ///< "weight", U8: see core/formats/quantised/bitsandbytes.h
    kRows8,         ///< "weight", I8, with "SCB": likewise
    kMlx,           ///< "weight", words: see core/formats/quantised/mlx_matrix.h
    kMlxFloat4,     ///< the same, floats of 4 bits
    kMlxFloat8,     ///< the same, F8_E4M3
    kTorchao,       ///< as the checkpoint's files say: see core/formats/quantised/torchao_matrix.h
    kTorchaoBytes,  ///< I8
    kTorchaoPairs,  ///< integers of 4 bits in pairs
    kTorchaoTiles,  ///< the same, in the order of a kernel for tensor cores
    /// Unsigned integers of `bits` bits, or that stand for CompressedMatrix::numbers, a byte each:
    /// as kGptq, kAwq, kBlocks4 and torchao's are unpacked.
    kBytes
  };
  /// What the one scale of a whole matrix does to the others, in float32.
  enum class WholeScale : uint8_t {
    kNone,
    kDivides,    ///< "weight_global_scale" of compressed-tensors' NVFP4
    kMultiplies  ///< "weight_scale_2" of modelopt's
  };
  Codes codes = Codes::kPacked;
  WholeScale whole_scale = WholeScale::kNone;
  int64_t bits = 8;             ///< of a packed code
  bool symmetric = true;        ///< else a code's zero point is subtracted from it first
  bool centred = false;         ///< codes are less half their range, though they have minima
  bool float8_scales = false;   ///< scales of type U8 are F8_E4M3, else powers of two
  bool zeros_less_one = false;  ///< zero points are stored less 1 (GPTQ's first format)
  /// Rows and columns of the parts that share a scale; 0 = all.
  int64_t rows_per_scale = 0;
  int64_t columns_per_scale = 0;
  /// What is wrong with what is said of some modules, who may not be there; "" = nothing.
  std::string mistake = {};

  bool operator==(const CompressionScheme&) const = default;
};

/// The schemes of a checkpoint and the modules that have them.
class CompressionSchemes {
 public:
  /// Some modules that are stored alike.
  struct Group {
    std::vector<ModulePattern> targets;
    CompressionScheme scheme;
  };

  /// All modules with one scheme.
  CompressionSchemes(const CompressionScheme& scheme)  // NOLINT: one scheme is a list of schemes
      : groups_{{{}, scheme}} {}
  /// The schemes of groups, at least one.
  explicit CompressionSchemes(std::vector<Group> groups);

  /// Scheme of a module. With several schemes it is that of the first target that has its name,
  /// names before expressions and each in alphabetical order, else of the first that has its class,
  /// as the library finds it; null where there is none.
  const CompressionScheme* find(std::string_view module) const;

  /// The names among the targets; none with one scheme.
  std::vector<std::string> names() const;

  bool operator==(const CompressionSchemes& other) const;

 private:
  /// A target and whose it is.
  struct Target {
    ModulePattern pattern;
    size_t group;
  };

  std::vector<Group> groups_;
  std::vector<Target> targets_;  ///< in the order in which they are tried; none with one scheme
};

/// The method that a quantization_config names: "mlx" where it names none but bits or groups, as
/// MLX writes it, else "unknown".
std::string quantisation_method(const JsonKeys& keys);
/// Whether parse_compression reads a method, or says in detail what of it is not supported.
bool is_known_quantisation(const std::string& method);

/// What the text of a config.json says in its quantization_config, or that of its text_config;
/// nothing without one. How activations and caches are rounded is left out: see
/// left_out_roundings. Throws WeightsError naming `where`, the key and what is not supported:
/// another method, format, strategy or number of bits, sparse weights.
std::optional<CompressionSchemes> parse_compression(const std::string& config,
                                                    const std::string& where);

/// What the text of a quantize_config.json says, in which folders of AutoGPTQ keep what others have
/// in config.json; its quant_method is gptq where it names none. Throws as parse_compression does.
CompressionSchemes parse_quantize_config(const std::string& config, const std::string& where);

/// What is said of checkpoints whose own runs round activations.
inline constexpr const char* kRoundedActivations =
    "the weights have the checkpoint's values; the activations, which its own runs round "
    "(input_activations, activation_scheme, load_in_8bit, a quant_type or tensors of torchao with "
    "activations), stay float32, so logits differ from theirs.";

/// What a reader should know of a text of which parse_compression makes schemes: roundings that it
/// asks for and that are not done, a sentence each.
std::vector<std::string> left_out_roundings(const std::string& config, const std::string& where);

}  // namespace specdec
