#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "core/families/description.h"
#include "core/formats/gguf/gguf.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/weights.h"

namespace specdec {

/// Reads the metadata of a GGUF file, or `model`/config.json (and generation_config.json) by the
/// family that its model_type names. Throws WeightsError naming file and key; an unknown family is
/// told the known ones.
ModelDescription describe_model(const std::filesystem::path& model);

/// A checkpoint whose headers have been read, once for all that is made of it.
struct OpenModel {
  ModelDescription description;
  std::shared_ptr<const TensorFiles> tensors;
  std::shared_ptr<const GgufFile> gguf;  ///< nullptr for a folder
  /// Roundings that the checkpoint asks for and that are not done, a sentence each.
  std::vector<std::string> notes = {};
};
/// Opens either; the file may be in memory. Errors as those of describe_model, and of damaged
/// headers.
OpenModel open_model(const std::filesystem::path& model);
OpenModel open_model(std::shared_ptr<const GgufFile> file);
/// A model without files: the text of its config.json, and tensors under the names of the hub, such
/// as MemoryTensors (core/formats/memory_tensors.h). Texts end with the config's eos_token_id:
/// there is no generation_config.json. Throws WeightsError naming `tensors->folder()`/config.json
/// and the key.
OpenModel open_model(const std::string& config_json, std::shared_ptr<const TensorFiles> tensors);

/// "gemma", ..., "llama", ...: the model_types that describe_model takes.
std::vector<std::string> known_model_types();

/// Loads a Hugging Face checkpoint folder or a GGUF file of any known family, checking every
/// tensor's name, shape and dtype. Matrices are laid out for the forward as they are read (q/k/v
/// and gate/up fused), mapped pages are given back at once: memory never holds much more than the
/// weights. Throws WeightsError naming file and tensor; tensors that a text model does not know are
/// an error, but those of a vision tower are skipped. Without options.dtype each matrix is as
/// stored.
std::shared_ptr<const TransformerWeights> load_model(const std::filesystem::path& model,
                                                     const LoadOptions& options = {});
std::shared_ptr<const TransformerWeights> load_model(const OpenModel& model,
                                                     const LoadOptions& options = {});
/// The same from a GGUF file that is open, or in memory.
std::shared_ptr<const TransformerWeights> load_model(std::shared_ptr<const GgufFile> file,
                                                     const LoadOptions& options = {});
/// As load_model, as plain tensors.
std::shared_ptr<TransformerTensors> load_model_tensors(const std::filesystem::path& model,
                                                       const LoadOptions& options = {});

/// Random weights (normal, sd 1/sqrt(fan in)): for tests and benchmarks, and where training starts.
std::shared_ptr<TransformerTensors> random_model(const ModelDescription& description,
                                                 const RandomWeightsOptions& options = {});
/// The same as a forward runs them: of options.dtype, float32 if it names none.
std::shared_ptr<const TransformerWeights> random_weights(const ModelDescription& description,
                                                         const LoadOptions& options);

}  // namespace specdec
