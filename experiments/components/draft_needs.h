#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"
#include "core/transformer/plan.h"
#include "experiments/components/cache_room.h"
#include "experiments/components/model_files.h"
#include "experiments/components/model_options.h"

namespace specdec {

class ConfigNode;
struct MemoryNeeds;
struct RunPlan;

/// Bytes that a drafter takes in memory beside its target, known before anything is loaded.
struct DraftNeeds {
  std::string key = {};     ///< of the config: "strategies[1].drafter"
  int64_t weights = 0;      ///< packed, with norms and biases, and plain ones that a head keeps too
  int64_t cache = 0;        ///< pages of a context, on a device all that its caches may hold
  int64_t activations = 0;  ///< of a prompt's largest forward
  int64_t results = 0;      ///< the target's features of a prompt, logits, rotary tables

  int64_t total() const { return weights + cache + activations + results; }
};

/// A drafter that a run is going to make. `context`: tokens of a text.
using MeasureDraft =
    std::function<DraftNeeds(const ModelFiles& target, const ModelOptions&, int64_t context)>;

/// A head as its files and config describe it.
struct PlannedHead {
  /// Opens its files: when it is measured, as most runs print no memory.
  std::function<std::shared_ptr<const TensorFiles>()> open;
  std::string prefix = {};                 ///< with which names of its tensors begin
  std::vector<std::string> left_out = {};  ///< ends of names of tensors that are not loaded
  /// Tensors of a module's layer, from "PREFIXlayers.MODULES." on, belong to unused modules.
  bool layer_is_module = false;
  /// Whether it keeps plain tensors beside what products read.
  bool keeps_tensors = false;
  /// Whether its matrices are int8 beside a target in blocks (head_packing).
  bool follows_blocks = false;
  int64_t target_rows = 0;             ///< of the target's own head, of which it has copies
  std::vector<LayerPlan> layers = {};  ///< with caches of their own
  int64_t modules = 1;                 ///< each of these layers, and a copy of "fc"
  int64_t feature_width = 0;           ///< of the target's features that it reads of a prompt
};

/// What a whole model takes, under a key.
DraftNeeds model_needs(std::string key, const MemoryNeeds& all);
/// Notes what a head takes (StrategyNotes::drafts); `drafter`: of the config.
void note_head(const ConfigNode& drafter, const RunPlan& run, PlannedHead head);
/// Notes a draft model, which is loaded with these options, on the device that is asked of.
void note_draft_model(const ConfigNode& drafter, const RunPlan& run, const ModelFiles& files,
                      const ModelOptions& options);

/// What a head takes beside a target. Reads no weights.
DraftNeeds head_needs(const PlannedHead& head, const ModelFiles& target,
                      const ModelOptions& options, int64_t context);

}  // namespace specdec
