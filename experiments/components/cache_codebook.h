#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/kernels/kv_format.h"
#include "core/kernels/level_calibration.h"
#include "core/kv_store.h"

namespace specdec {

/// What the codes of a cache in q3 mean, calibrated for a model on a text.
struct CacheCodebook {
  std::filesystem::path file = {};  ///< that it was read from
  std::string model;                ///< weights_fingerprint of the weights
  KvRotation rotation = KvRotation::kNone;
  LevelWeights weights = LevelWeights::kEqual;
  int64_t tokens = 0;              ///< of the text
  std::vector<at::Tensor> levels;  ///< LayerKv::levels; undefined for a layer without own keys

  /// Gives the layers their levels. Throws Error where these are layers of another shape.
  void give_to(std::vector<LayerKv>& layers) const;
  /// Throws Error for a model of another weights_fingerprint.
  void check_model(const std::string& fingerprint) const;
  /// Fingerprint of the levels: a run goes on with the same ones only.
  std::string fingerprint() const;
};

/// Reads a .safetensors file of `specdec score --calibrate`. Throws WeightsError for another file.
CacheCodebook read_cache_codebook(const std::filesystem::path& file);
/// Writes the file whole or not at all; throws Error where it cannot.
void write_cache_codebook(const std::filesystem::path& file, const CacheCodebook& codebook);

/// Throws Error where no codebook can be written under this name: before the work for one. What is
/// there already must be one too.
void check_codebook_output(const std::filesystem::path& file);

/// Makes a codebook of the keys and values of texts.
class CodebookCalibration {
 public:
  CodebookCalibration(KvRotation rotation, LevelWeights weights)
      : rotation_(rotation), weights_(weights) {}

  /// Takes what a row of an exact cache holds of its layers with keys and values of their own,
  /// which are the same in each call. On the host or a device.
  void add(const KvStore& cache, RowId row, const std::vector<int64_t>& layers);
  /// `layers`: all layers of the model with the fingerprint.
  CacheCodebook codebook(int64_t layers, const std::string& fingerprint) const;

 private:
  struct Layer {
    int64_t number;
    std::vector<LevelCalibration> keys, values;  ///< of each head
  };
  void add_heads(const at::Tensor& numbers, std::vector<LevelCalibration>& heads) const;

  KvRotation rotation_;
  LevelWeights weights_;
  int64_t tokens_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace specdec
