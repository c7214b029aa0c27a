#pragma once
#include <cstdint>

#include "experiments/components/model_files.h"
#include "experiments/components/model_options.h"

namespace specdec {

/// Bytes that a model takes in memory, known before it is loaded: its weights, and what a prompt of
/// `context` tokens makes it allocate.
struct MemoryNeeds {
  int64_t context = 0;
  int64_t matrices = 0;  ///< packed, in the formats in which they are loaded
  int64_t vectors = 0;   ///< norms and biases
  int64_t mapped = 0;    ///< of tables that stay in their file: in no sum, need not be resident
  /// Pages of the layers of each kind: of the context, on a device all that the cache may hold.
  int64_t sliding_cache = 0, full_cache = 0;
  int64_t states = 0;         ///< most of recurrent layers at a time: of a prompt's pieces
  int64_t cache_on_disk = 0;  ///< of these pages what a cache's memory does not hold: in no sum
  /// The host's pinned memory that tiers of a GPU take: in no sum, since the others are the GPU's.
  int64_t pinned_cache = 0;
  int64_t activations = 0;  ///< of a prompt's largest forward, with a library's scratch
  int64_t rotations = 0;    ///< tables of cosines and sines
  int64_t results = 0;      ///< hidden states of the prompt, logits of its last token
  int64_t cache_per_token = 0;

  int64_t cache() const { return sliding_cache + full_cache + states; }
  int64_t total() const {
    return matrices + vectors + cache() - cache_on_disk + activations + rotations + results;
  }
};

/// How a model is measured that would be loaded with these options: on a machine that need not have
/// the device.
LoadOptions measured_options(const ModelOptions& options);
/// What a cache takes that holds a row of `context` tokens: pages and states.
int64_t cache_needs(const TransformerInfo& layers, const ModelOptions& options, int64_t context);
/// Tables of cosines and sines.
int64_t rotation_needs(const TransformerInfo& layers, int64_t context);

/// Reads no weights. Throws ConfigError for a context that the model does not hold, and what
/// loading with these options would throw for dtypes.
MemoryNeeds memory_needs(const ModelFiles& files, const ModelOptions& options, int64_t context);

}  // namespace specdec
