#include "core/families/model.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/gguf/gguf_config.h"
#include "core/families/gguf/gguf_tensors.h"
#include "core/families/llama/config.h"
#include "core/families/loading.h"
#include "core/families/recurrent_gemma/config.h"
#include "core/families/recurrent_gemma/tensors.h"
#include "core/families/token_ids.h"
#include "core/families/unsupported_models.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/quantised/compressed_tensors.h"
#include "core/formats/strict_json.h"
#include "core/formats/torch_dtype.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

/// A folder of core/families/: a new family is a new line.
struct Family {
  const std::vector<std::string>& (*model_types)();
  ModelDescription (*describe)(const std::filesystem::path& folder);
  ModelDescription (*parse)(const std::string& text, const std::string& where,
                            const KeyNames& names);
};

constexpr Family kFamilies[] = {
    {gemma_model_types, load_gemma_config, parse_gemma_config},
    {gemma4_model_types, load_gemma4_config, parse_gemma4_config},
    {llama_model_types, load_llama_config, parse_llama_config},
    {recurrent_gemma_model_types, load_recurrent_gemma_config, parse_recurrent_gemma_config}};

/// That of a config.json's model_type.
const Family& family_of(const JsonKeys& keys) {
  const std::string type = keys.text("model_type", "");
  for (const Family& family : kFamilies) {
    const auto& types = family.model_types();
    if (std::find(types.begin(), types.end(), type) != types.end()) {
      return family;
    }
  }
  keys.fail("model_type", fmt::format("is '{}'{}; known: {}", type, unsupported_family(type),
                                      fmt::join(known_model_types(), ", ")));
}

/// Refuses types that do not exist; what the tensors have counts.
void check_dtypes(const JsonKeys& keys) {
  (void)torch_dtype(keys);
  constexpr const char* kText = "text_config";
  if (keys.has(kText) && keys.at(kText).is_object()) {
    (void)torch_dtype(keys.object(kText));
  }
}

void require_config_file(const std::filesystem::path& folder) {
  std::error_code code;
  if (has_entry(folder / "config.json")) {
    return;
  }
  if (std::filesystem::exists(folder / "adapter_config.json", code)) {
    throw WeightsError(fmt::format(
        "{}: holds an adapter (LoRA: adapter_config.json), which is no model itself. Name its base "
        "model and give this folder as --adapter {} (in a config: model.adapters), or merge it "
        "into the base (peft's merge_and_unload, then save_pretrained) and name that folder.",
        folder.string(), folder.string()));
  }
  const auto file = first_gguf(folder);
  throw WeightsError(
      file.empty()
          ? fmt::format("{}: it holds no config.json. Name a Hugging Face checkpoint folder, or a "
                        "GGUF file.",
                        folder.string())
          : fmt::format("{}: it holds no config.json, but a GGUF file. Name the file: {}",
                        folder.string(), file.string()));
}

/// How matrices are compressed, by the text of a config.json or the quantize_config.json beside it;
/// none for those that are not.
std::optional<CompressionSchemes> compression_of(const std::string& text,
                                                 const std::filesystem::path& where) {
  const std::filesystem::path gptq = where.parent_path() / "quantize_config.json";
  std::error_code ignored;
  auto schemes = parse_compression(text, where.string());
  if (!schemes && std::filesystem::exists(gptq, ignored)) {
    schemes = parse_quantize_config(read_file(gptq), gptq.string());
  }
  return schemes;
}

/// Its tensors with the values of compressed matrices, if its config says so, and under the names
/// of other families. `where`: the path of the config.json with the text.
OpenModel with_values(OpenModel model, const std::string& text, const std::string& where) {
  if (const auto schemes = compression_of(text, where)) {
    const auto tensors = std::make_shared<CompressedTensors>(std::move(model.tensors), *schemes);
    model.notes = left_out_roundings(text, where);
    for (const std::string& note : tensors->notes()) {
      if (std::find(model.notes.begin(), model.notes.end(), note) == model.notes.end()) {
        model.notes.push_back(note);
      }
    }
    model.tensors = tensors;
  }
  const std::vector<LayerPlan>& plan = model.description.plan;
  if (std::any_of(plan.begin(), plan.end(), is_recurrent)) {
    model.tensors = std::make_shared<RecurrentGemmaTensors>(std::move(model.tensors), plan);
  }
  return model;
}

OpenModel open_folder(const std::filesystem::path& folder) {
  OpenModel model{.description = describe_model(folder),
                  .tensors = std::make_shared<CheckpointTensors>(folder),
                  .gguf = nullptr};
  const std::filesystem::path config = folder / "config.json";
  return with_values(std::move(model), read_file(config), config.string());
}

template <class Matrix>
std::shared_ptr<TransformerOf<Matrix>> load(const std::filesystem::path& path,
                                            const LoadOptions& options) {
  const OpenModel model = open_model(path);
  TensorSource source(model.tensors, options.place);
  return load_from<Matrix>(source, model.description, options);
}

}  // namespace

ModelDescription describe_model(const std::filesystem::path& folder) {
  if (is_gguf(folder)) {
    return describe_gguf(GgufFile(folder).content());
  }
  refuse_other_file(folder);
  if (!std::filesystem::is_directory(folder)) {
    throw WeightsError(
        fmt::format("{}: no such folder. Name a Hugging Face checkpoint folder, or a GGUF file.",
                    folder.string()));
  }
  require_config_file(folder);
  refuse_head(folder);
  const std::string where = (folder / "config.json").string();
  const auto parsed = parse_json_object(read_file(where), where);
  const JsonKeys keys(parsed, where);
  const Family& family = family_of(keys);
  check_dtypes(keys);
  ModelDescription model = family.describe(folder);
  model.config.suppressed_ids = read_suppressed(folder, model.config.vocab_size);
  return model;
}

std::vector<std::string> known_model_types() {
  std::vector<std::string> all;
  for (const Family& family : kFamilies) {
    all.insert(all.end(), family.model_types().begin(), family.model_types().end());
  }
  return all;
}

OpenModel open_model(std::shared_ptr<const GgufFile> file) {
  OpenModel model{.description = describe_gguf(file->content()), .tensors = nullptr, .gguf = file};
  model.tensors = std::make_shared<GgufTensors>(std::move(file), model.description.plan);
  return model;
}

OpenModel open_model(const std::string& config_json, std::shared_ptr<const TensorFiles> tensors) {
  SPECDEC_CHECK(tensors != nullptr, "open_model: no tensors");
  const std::string where = (tensors->folder() / "config.json").string();
  const auto parsed = parse_json_object(config_json, where);
  const JsonKeys keys(parsed, where);
  if (const std::string kind = head_kind(keys); !kind.empty()) {
    throw WeightsError(
        fmt::format("{}: describes a head of type {}, which drafts for a model and is none itself.",
                    where, kind));
  }
  const Family& family = family_of(keys);
  check_dtypes(keys);
  OpenModel model{.description = family.parse(config_json, where, {}),
                  .tensors = std::move(tensors),
                  .gguf = nullptr};
  return with_values(std::move(model), config_json, where);
}

OpenModel open_model(const std::filesystem::path& model) {
  if (is_gguf(model)) {
    return open_model(std::make_shared<const GgufFile>(model));
  }
  return open_folder(model);
}

std::shared_ptr<const TransformerWeights> load_model(const OpenModel& model,
                                                     const LoadOptions& options) {
  TensorSource source(model.tensors, options.place);
  return load_from<Linear>(source, model.description, options);
}

std::shared_ptr<const TransformerWeights> load_model(std::shared_ptr<const GgufFile> file,
                                                     const LoadOptions& options) {
  return load_model(open_model(std::move(file)), options);
}

std::shared_ptr<const TransformerWeights> load_model(const std::filesystem::path& folder,
                                                     const LoadOptions& options) {
  return load<Linear>(folder, options);
}

std::shared_ptr<TransformerTensors> load_model_tensors(const std::filesystem::path& folder,
                                                       const LoadOptions& options) {
  SPECDEC_CHECK(options.dtype != at::kChar, "load_model_tensors: int8 is a format of Linear");
  return load<Tensor>(folder, options);
}

namespace {

void add_random_family(RandomTensors& random, TransformerTensors& weights) {
  const LayerPlan& first = weights.plan.front();
  const int64_t hidden = weights.config.hidden_size;
  if (first.per_layer_size > 0) {
    const int64_t width = weights.config.per_layer_count * first.per_layer_size;
    weights.per_layer_table = RowTable(random.matrix(weights.config.per_layer_vocab, width));
    weights.per_layer_projection = random.matrix(width, hidden);
    weights.per_layer_norm = random.norm(first.per_layer_size);
  }
  for (int64_t i = 0; i + 1 < first.altup.streams; ++i) {
    weights.altup_projections.push_back(random.matrix(hidden, hidden));
    weights.altup_unembeddings.push_back(random.matrix(hidden, hidden));
  }
}

}  // namespace

std::shared_ptr<TransformerTensors> random_model(const ModelDescription& description,
                                                 const RandomWeightsOptions& options) {
  auto weights = std::make_shared<TransformerTensors>();
  weights->weight_dtype = options.dtype;
  weights->config = description.config;
  weights->plan = description.plan;
  RandomTensors random(options);
  const int64_t vocab = description.config.vocab_size;
  const int64_t hidden = description.config.hidden_size;
  weights->embedding = random.matrix(vocab, hidden);
  weights->embedding_scale = embedding_scale(description, weights->compute_dtype());
  weights->head =
      description.config.tie_word_embeddings ? weights->embedding : random.matrix(vocab, hidden);
  for (const LayerPlan& plan : weights->plan) {
    weights->layers.push_back(random_layer(random, plan, hidden));
  }
  add_random_family(random, *weights);
  weights->final_norm = random.norm(hidden);
  weights->fingerprint = weights->weights_fingerprint = fmt::format("random-{}", options.seed);
  return weights;
}

std::shared_ptr<const TransformerWeights> random_weights(const ModelDescription& description,
                                                         const LoadOptions& options) {
  const at::ScalarType dtype = options.dtype.value_or(at::kFloat);
  // Blocks are made of bfloat16, which takes less memory beside them.
  const at::ScalarType plain = dtype == at::kChar ? at::kBFloat16 : dtype;
  const auto weights = pack(*random_model(description, {.dtype = plain, .repeats = true}),
                            {.dtype = dtype, .place = options.place});
  set_activations(*weights, options.activations);
  return weights;
}

}  // namespace specdec
