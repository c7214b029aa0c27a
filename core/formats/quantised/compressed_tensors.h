#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/quantised/compressed_matrix.h"
#include "core/formats/quantised/compression_scheme.h"
#include "core/formats/safetensors.h"

namespace specdec {

/// The tensors of a checkpoint of compressed-tensors, its matrices with all their values as blocks
/// of about their stored size (core/formats/quantised/scaled_blocks.h; GGUF's Q4_0 and Q8_0 where
/// these hold them), or as float32 where no block holds them
/// (core/formats/quantised/compressed_matrix.h). The bytes of a matrix are made by `provide` and
/// stay in memory until they are released as a whole. Tensors that are not compressed are those of
/// the file. A matrix NAME.weight is stored as that (NAME.weight_packed), with NAME.weight_scale
/// and others beside it; a stack of experts' matrices, NAME.gate_up_proj, likewise.
class CompressedTensors final : public TensorFiles {
 public:
  CompressedTensors(std::shared_ptr<const TensorFiles> stored, CompressionSchemes schemes);

  /// Throws WeightsError naming folder and tensor, of the matrix that is looked for: shapes and
  /// types of codes, scales and zero points that do not fit each other or the scheme, and codes of
  /// which config.json says in no group how they are stored.
  const TensorEntry* find(std::string_view name) const override;
  std::vector<const TensorEntry*> tensors() const override;
  /// Throws WeightsError naming folder and tensor: scales that are not finite, codes that are none.
  void provide(const TensorEntry& entry) const override;
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const override;
  const std::filesystem::path& folder() const override { return stored_->folder(); }
  std::string_view described_by() const override { return stored_->described_by(); }
  /// What a reader should know: modules that config.json names and no file holds (MLX), activations
  /// that the files' matrices round (torchao), in left_out_roundings' words.
  std::vector<std::string> notes() const;
  std::vector<std::pair<std::string, std::string>> missing() const override;
  std::string stored_name(const std::string& name) const override;

 private:
  struct Matrix {
    CompressedMatrix stored;
    TensorEntry values;
    std::unique_ptr<std::byte[]> memory;  ///< of the values; null until they are made
  };

  [[noreturn]] void fail(const TensorEntry& entry, const std::string& problem) const;
  /// The name of the matrix whose codes a tensor holds, "" for another one.
  std::string matrix_of(const TensorEntry& entry) const;
  /// Adds the matrix whose codes a tensor holds, by the scheme of its module.
  void find_scheme(const TensorEntry& codes, const std::string& name);
  /// Adds all matrices of torchao, and what is no part of one.
  void add_torchao();
  /// Throws WeightsError where the matrix is there in another form too.
  void add(const std::string& name, const CompressedMatrix& stored);
  CompressedMatrix describe(const TensorEntry& codes, const std::string& name,
                            const CompressionScheme& scheme) const;
  /// Throws WeightsError where numbers beside the codes are not finite.
  void check_scales(const CompressedMatrix& matrix) const;
  /// A bias of zeros beside GPTQ's codes, which AutoGPTQ writes for modules that have none: models
  /// that know of it find it, others need not.
  bool is_idle_bias(const TensorEntry& entry) const;

  std::shared_ptr<const TensorFiles> stored_;
  CompressionSchemes schemes_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Matrix, std::less<>> matrices_;
  /// Tensors that are no part of a compressed matrix. Of a matrix that is refused, the codes or all
  /// parts are among them, so that nobody takes the file for one without it.
  std::vector<const TensorEntry*> plain_;
  /// Why matrices are not read, by their names.
  std::map<std::string, std::string, std::less<>> refused_;
  bool rounds_activations_ = false;
};

}  // namespace specdec
