#include "experiments/components/model_loading.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/limited_model.h"
#include "core/families/model.h"
#include "experiments/components/cache_codebook.h"
#include "experiments/components/thread_choice.h"

namespace specdec {
namespace {

/// Tokens before the padding of a vocabulary: those that have a piece; 0 = unknown.
int64_t usable_tokens(const ModelFiles& files) {
  return files.tokenizer == nullptr ? 0 : used_pieces(*files.tokenizer);
}

/// As `usable_tokens`, of models that are to decode: those that the checkpoint says.
std::vector<Token> suppressed_tokens(const ModelOptions& options, const TransformerInfo& model,
                                     const ModelFiles* files) {
  return files == nullptr || !options.suppresses ? std::vector<Token>()
                                                 : model.config.suppressed_ids;
}

}  // namespace

std::string format_text(const TransformerWeights& model) {
  std::map<WeightFormat, int64_t> weights;
  const auto count = [&](const Linear& matrix) {
    for (int64_t output = 0; output < matrix.out(); ++output) {
      weights[matrix.format(output)] += matrix.in();
    }
  };
  count(model.head);
  for (const LayerWeights& layer : model.layers) {
    for (const Linear* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      count(*matrix);
    }
  }
  std::vector<std::pair<int64_t, std::string>> formats;
  for (const auto& [format, number] : weights) {
    formats.emplace_back(-number, format_name(format));
  }
  std::sort(formats.begin(), formats.end());
  std::string text;
  for (const auto& [number, name] : formats) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text + (model.activations == ActivationFormat::kInt8 ? ", activations int8" : "");
}

ModelLoader::ModelLoader(ModelOptions options, const ModelCatalog* catalog)
    : options_(std::move(options)), catalog_(catalog) {}

std::shared_ptr<const TransformerWeights> ModelLoader::read_weights(
    const std::filesystem::path& folder, const ModelOptions& own, const LoadOptions& options) {
  const MemoryLimit& memory = own.memory;
  const bool is_limited = memory.bytes > 0 && (memory.model.empty() || memory.model == folder);
  if (own.random_weights) {
    check_activations(own);
    require_config(
        !is_limited,
        "random weights are made in memory, where a memory limit cannot hold them: leave "
        "out one of the two");
    return random_weights(describe_model(folder), options);
  }
  const ModelFiles* files = catalog_ == nullptr ? nullptr : catalog_->find(folder);
  const OpenModel open = files == nullptr ? open_model(folder) : *files->open;
  check_activations_of(folder, own, open);
  if (!is_limited) {
    return load_model(open, options);
  }
  auto model = load_model_within(open, options, {memory.bytes, memory.layer_file});
  if (model->source != nullptr) {
    note_warning(fmt::format("{}: {} (memory limit)", folder.string(), disk_text(*model)));
  }
  return model;
}

/// The formats of `own` weights that are not those of `usual`, in words.
static std::string other_formats(const ModelOptions& own, const ModelOptions& usual) {
  FormatChoice other;
  if (parse_dtype(own.dtype) != parse_dtype(usual.dtype)) {
    other.dtype = own.dtype.empty() ? "stored" : own.dtype;
  }
  if (parse_activations(own.activations) != parse_activations(usual.activations)) {
    other.activations = own.activations.empty() ? "float32" : own.activations;
  }
  return other.text();
}

std::shared_ptr<const TransformerWeights> ModelLoader::weights(const std::filesystem::path& folder,
                                                               const FormatChoice& formats) {
  ModelOptions own = formats.over(options_);
  const std::string others = other_formats(own, options_);
  Loaded& loaded = weights_[fmt::format("{}|{}", folder.string(), others)];
  if (loaded.weights == nullptr) {
    if (!others.empty()) {
      own.memory = {};
    }
    check_device(own);
    const auto model = read_weights(folder, own, load_options(own));
    if (!model->place.device.is_cpu() && model->compute_dtype() != at::kFloat) {
      throw Error(
          fmt::format("{} holds float64 weights, which run on the CPU only, not on '{}'; "
                      "choose dtype: float32, or device: cpu",
                      folder.string(), own.device));
    }
    const ActiveLayers& active = options_.active_layers;
    loaded = {folder, others, first_layers(model, folder == active.model ? active.count : 0)};
  }
  // Weights that are loaded may be asked for with another kv_dtype.
  if (parse_kv_dtype(own.kv_dtype) != KvFormat::kNative &&
      loaded.weights->compute_dtype() != at::kFloat) {
    throw Error(
        fmt::format("kv_dtype {} needs float32 activations, but {} is computed in "
                    "float64; leave kv_dtype out, or choose dtype: float32",
                    own.kv_dtype, folder.string()));
  }
  return loaded.weights;
}

std::shared_ptr<const LoraAdapter> ModelLoader::adapter(const std::filesystem::path& model,
                                                        const std::filesystem::path& folder) {
  auto& adapter = adapters_[fmt::format("{}|{}", model.string(), folder.string())];
  if (adapter == nullptr) {
    adapter = load_lora(folder, weights(model));
  }
  return adapter;
}

std::unique_ptr<TransformerModel> ModelLoader::load(const std::filesystem::path& folder,
                                                    const std::vector<AdapterChoice>& adapters,
                                                    const std::optional<CacheChoice>& cache,
                                                    const FormatChoice& formats) {
  auto shared = weights(folder, formats);
  if (shared->config.bidirectional) {
    throw Error(
        fmt::format("{}: is an encoder (bidirectional attention), which cannot decode; "
                    "'specdec embed' gives its embeddings",
                    folder.string()));
  }
  const ModelOptions own = formats.over(options_);
  const CacheChoice& choice = cache ? *cache : options_.cache;
  choice.check_model(shared->weights_fingerprint);
  if (choice.codebook != nullptr) {
    heads_[choice.codebook->file.string()] = choice.codebook->fingerprint();
  }
  const ModelFiles* files = catalog_ == nullptr ? nullptr : catalog_->find(folder);
  const TransformerOptions options{.max_length = max_length_of(options_, shared->config),
                                   .usable_tokens = files == nullptr ? 0 : usable_tokens(*files),
                                   .suppressed = suppressed_tokens(options_, *shared, files),
                                   .prefill_threads = options_.prefill_threads,
                                   .graphs = options_.cuda_graphs,
                                   .prefill_graphs = options_.prefill_graphs};
  auto model = std::make_unique<TransformerModel>(
      std::move(shared),
      cache ? choice.factory(parse_kv_dtype(own.kv_dtype)) : choice.factory(kv_format_of(own)),
      options);
  if (!options_.cache.loss.empty()) {
    note_warning(fmt::format(
        "the cache is lossy ({}): the target is another model than with an exact cache, by as much "
        "as 'specdec score' says",
        options_.cache.loss));
  }
  if (options_.library_products) {
    note_warning(
        "prefill_products: library: cuBLAS multiplies pieces of prompts of 256 tokens or more, so "
        "texts may differ by rounding from those of exact products");
  }
  if (model->cache().trace() != nullptr) {
    note_warning(fmt::format(
        "{}: its cache is traced, so its attention is computed twice, and times and speed-ups of "
        "this run say nothing; those of a run with cache: paged do",
        folder.string()));
  }
  set_adapters(*model, folder, adapters);
  if (thread_reason_.empty() && options_.threads > 0) {
    at::set_num_threads(static_cast<int>(options_.threads));
    thread_reason_ = options_.thread_reason;
  } else if (thread_reason_.empty() && model->cache().trace() != nullptr) {
    thread_reason_ = "not measured, since the cache is traced";
  } else if (thread_reason_.empty()) {
    thread_reason_ = measure_threads(*model).reason;
  }
  return model;
}

void ModelLoader::set_adapters(TransformerModel& model, const std::filesystem::path& folder,
                               const std::vector<AdapterChoice>& adapters) {
  std::vector<ScaledAdapter> wanted;
  for (const AdapterChoice& choice : adapters) {
    wanted.push_back({adapter(folder, choice.path), choice.scale});
  }
  const auto& present = model.adapters().adapters();
  const bool same = std::equal(wanted.begin(), wanted.end(), present.begin(), present.end(),
                               [](const ScaledAdapter& a, const ScaledAdapter& b) {
                                 return a.adapter == b.adapter && a.scale == b.scale;
                               });
  if (same) {
    return;
  }
  model.truncate(0);
  model.clear_adapters();
  for (ScaledAdapter& each : wanted) {
    model.push_adapter(std::move(each));
  }
}

std::shared_ptr<const AdapterStack> ModelLoader::draft_adapter(const std::filesystem::path& model,
                                                               const AdapterChoice& choice) {
  auto& kept = draft_adapters_[fmt::format("{}|{}", model.string(), adapter_text(choice))];
  if (kept == nullptr) {
    auto stack = std::make_shared<AdapterStack>(weights(model));
    stack->push({load_lora(choice.path, weights(model)), choice.scale});
    kept = std::move(stack);
  }
  note_fingerprint(choice.path.string(), kept->adapters().front().adapter->fingerprint);
  return kept;
}

KvStoreFactory ModelLoader::kv_store() const {
  return options_.cache.beside_target().factory(kv_format_of(options_));
}

void ModelLoader::note_fingerprint(const std::string& name, const std::string& fingerprint) {
  heads_[name] = fingerprint;
  if (!adapters_.empty()) {
    note_warning(fmt::format(
        "{}: the target runs with adapters that this head was not trained for. Its output stays "
        "correct, but fewer drafts may be accepted.",
        name));
  }
}

void ModelLoader::note_warning(const std::string& warning) {
  if (!warning.empty() &&
      std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) {
    warnings_.push_back(warning);
  }
}

std::map<std::string, std::string> ModelLoader::fingerprints() const {
  std::map<std::string, std::string> all = heads_;
  for (const auto& [key, loaded] : weights_) {
    if (loaded.weights != nullptr) {
      const ActiveLayers& active = options_.active_layers;
      std::string name = loaded.folder.string();
      if (active.count > 0 && loaded.folder == active.model) {
        name += fmt::format(" (first {} layers)", active.count);
      }
      if (!loaded.formats.empty()) {
        name += fmt::format(" ({})", loaded.formats);
      }
      all[name] = loaded.weights->fingerprint;
    }
  }
  for (const auto& [key, adapter] : adapters_) {
    if (adapter != nullptr) {
      all[adapter->name] = adapter->fingerprint;
    }
  }
  return all;
}

}  // namespace specdec
