#pragma once
#include "core/formats/json_keys.h"
#include "core/transformer/heads/block_head_config.h"

namespace specdec {

/// Reads the config of a block drafter in any of the published formats:
///   speculators  with `speculators_model_type`; layers in `transformer_layer_config`
///   DeepSpec     architectures Gemma4DSparkModel and Qwen3DSparkModel; all keys at the top
///   z-lab        all others, SpecForge's too: the method's keys in `dflash_config` or at the top
/// Throws WeightsError naming file and key: for what is not supported, and for other kinds of
/// heads.
BlockHeadConfig read_block_head_config(const JsonKeys& keys);

}  // namespace specdec
