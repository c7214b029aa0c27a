#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "core/families/model.h"
#include "core/kernels/copy_queue.h"

namespace specdec {

/// Memory that a model's weights may take, and the file in which all its layers lie packed, so that
/// those that do not fit can be read in turn.
struct WeightLimit {
  int64_t bytes = 0;
  std::filesystem::path layer_file = {};  ///< "" = default_layer_file
  /// Makes what copies layers to a device.
  std::function<std::shared_ptr<CopyQueue>(at::Device)> copies = device_copies;
};

/// The layer file that is used when none is named: in the user's cache folder, under the model's
/// name and a hash of its path, dtype and layout.
std::filesystem::path default_layer_file(const OpenModel& model, const LoadOptions& options);

/// Loads a model as load_model does, with weights that take at most limit.bytes: a model that fits
/// is loaded whole, another one with a LayerPager over its layer file. That is written, layer after
/// layer, where it is missing, damaged or was made of other weights: it is known by the config and
/// by names, sizes and times of the checkpoint's files, and by the layout. On a GPU the limit is of
/// its memory, and the layer file is made in the host's. Tables of rows that stay in their file are
/// not counted. Throws ConfigError for a limit that is too small, an Apple GPU, and a model that is
/// not in files; Error where the layer file cannot be written or read, or is of another kind.
std::shared_ptr<const TransformerWeights> load_model_within(const OpenModel& model,
                                                            const LoadOptions& options,
                                                            const WeightLimit& limit);

/// Throws what load_model_within would throw before it reads or writes weights: for a limit that is
/// too small, and a layer file that is of another kind, or missing where none can be written.
void check_model_within(const OpenModel& model, const LoadOptions& options,
                        const WeightLimit& limit);

}  // namespace specdec
