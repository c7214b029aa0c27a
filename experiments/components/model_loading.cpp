#include "experiments/components/model_loading.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/limited_model.h"
#include "core/families/model.h"
#include "core/formats/safetensors.h"
#include "core/kernels/ops.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/tokenizer_files.h"
#include "experiments/components/cache_codebook.h"
#include "experiments/components/thread_choice.h"

namespace specdec {
namespace {

/// Default limit of a model's context: caches of 128k tokens would take
/// memory that experiments do not need.
constexpr int64_t kDefaultMaxLength = 8192;

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {{"float32", at::kFloat},
                                                              {"float64", at::kDouble},
                                                              {"bfloat16", at::kBFloat16},
                                                              {"float16", at::kHalf},
                                                              {"int8", at::kChar}};

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

/// nullptr when there is none.
std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& folder, const GgufFile* gguf,
                                          std::vector<std::string>& notes) {
  if (gguf != nullptr) {
    return has_tokenizer(gguf->metadata()) ? gguf_tokenizer(gguf->metadata()) : nullptr;
  }
  const auto file = tokenizer_file(folder);
  return file.empty() ? nullptr : load_tokenizer(file, &notes);
}

/// Texts end with the tokenizer's <eos> too where a folder's configs name others, as with GGUF
/// files, which name it first.
void add_tokenizers_end(const Tokenizer& tokenizer, TransformerConfig& config,
                        std::vector<std::string>& notes) {
  const auto end = tokenizer.eos();
  auto& ends = config.end_ids;
  if (!end || std::find(ends.begin(), ends.end(), *end) != ends.end()) {
    return;
  }
  notes.push_back(
      fmt::format("the tokenizer's <eos> is {} ({}), but config.json and generation_config.json "
                  "name {}: a text ends with any of them.",
                  *end, tokenizer.piece(*end),
                  ends.empty() ? "none" : fmt::format("{}", fmt::join(ends, ", "))));
  ends.push_back(*end);
}

}  // namespace

ModelFiles read_model_files(const std::filesystem::path& folder) {
  const auto open = std::make_shared<OpenModel>(open_model(folder));
  ModelFiles files{folder, open->description.config, open->description.plan, nullptr, open};
  files.notes = open->notes;
  try {
    files.tokenizer = read_tokenizer(folder, open->gguf.get(), files.notes);
  } catch (const Error& error) {
    files.tokenizer_error = error.what();
  }
  (void)measure_weights(*open);  // their names, shapes and dtypes
  if (files.tokenizer != nullptr) {
    add_tokenizers_end(*files.tokenizer, open->description.config, files.notes);
    files.config = open->description.config;
  }
  if (files.tokenizer != nullptr) {
    if (files.tokenizer->vocab_size() > files.config.vocab_size) {
      throw WeightsError(fmt::format(
          "{}: the tokenizer has {} pieces, but the model's vocabulary only {}; it belongs to "
          "another model",
          folder.string(), files.tokenizer->vocab_size(), files.config.vocab_size));
    }
  }
  if (const auto& suppressed = files.config.suppressed_ids; !suppressed.empty()) {
    constexpr size_t kShown = 8;
    const auto count = static_cast<int64_t>(std::min(kShown, suppressed.size()));
    files.notes.push_back(fmt::format(
        "the checkpoint's suppress_tokens are never generated: {} ({}{}).", suppressed.size(),
        fmt::join(suppressed.begin(), suppressed.begin() + count, ", "),
        suppressed.size() > kShown ? ", ..." : ""));
  }
  return files;
}

void print_notes(const ModelFiles& files, std::ostream& err) {
  for (const std::string& note : files.notes) {
    err << fmt::format("{}: note: {}\n", files.folder.string(), note);
  }
}

const ModelFiles* ModelCatalog::find(const std::filesystem::path& folder) const {
  const auto found = files_.find(folder.string());
  return found == files_.end() ? nullptr : &found->second;
}

const ModelFiles& ModelCatalog::read(const std::filesystem::path& folder) {
  const auto found = files_.find(folder.string());
  if (found != files_.end()) {
    return found->second;
  }
  return files_.emplace(folder.string(), read_model_files(folder)).first->second;
}

const ModelFiles& ModelCatalog::read(const std::filesystem::path& folder, int64_t active_layers) {
  const ModelFiles& whole = read(folder);
  check_active_layers(active_layers, whole.config.num_layers);
  if (active_layers == 0 || active_layers == whole.config.num_layers) {
    return whole;
  }
  ModelFiles first = whole;
  first.config.num_layers = active_layers;
  first.plan.resize(static_cast<size_t>(active_layers));
  return files_.emplace(fmt::format("{}|{}", folder.string(), active_layers), std::move(first))
      .first->second;
}

std::string vocabulary_mismatch(const ModelFiles& target, const ModelFiles& draft) {
  std::string reason;
  if (target.tokenizer != nullptr && draft.tokenizer != nullptr) {
    return same_vocabulary(*target.tokenizer, *draft.tokenizer, reason)
               ? ""
               : "draft and target have different vocabularies: " + reason;
  }
  if (target.config.vocab_size != draft.config.vocab_size) {
    return fmt::format("the draft model's vocabulary has {} entries, the target's {}",
                       draft.config.vocab_size, target.config.vocab_size);
  }
  return "";
}

int64_t max_length_of(const ModelOptions& options, const TransformerConfig& config) {
  const int64_t wanted = options.max_length == 0 ? kDefaultMaxLength : options.max_length;
  return std::min(config.max_position_embeddings, wanted);
}

std::optional<at::ScalarType> parse_dtype(const std::string& name) {
  if (name.empty() || name == "stored") {
    return std::nullopt;
  }
  for (const auto& [known, type] : kDtypes) {
    if (name == known) {
      return type;
    }
  }
  throw ConfigError(fmt::format(
      "unknown dtype '{}'; known: stored, float32, float64, bfloat16, float16, int8", name));
}

ActivationFormat parse_activations(const std::string& name) {
  if (!name.empty() && name != "float32" && name != "int8") {
    throw ConfigError(fmt::format("unknown activations '{}'; known: float32, int8", name));
  }
  return name == "int8" ? ActivationFormat::kInt8 : ActivationFormat::kFloat32;
}

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

void check_activations(const ModelOptions& options) {
  const bool plain = options.dtype == "float32" || options.dtype == "float64" ||
                     options.dtype == "bfloat16" || options.dtype == "float16";
  if (parse_activations(options.activations) == ActivationFormat::kInt8 && plain) {
    throw ConfigError(
        "int8 needs weights in blocks, which are multiplied as integers: set dtype: int8, or "
        "dtype: stored for blocks of integers (GGUF's Q4_0 to Q8_0 and Q4_K to Q6_K, w4a16); or "
        "leave "
        "activations out");
  }
}

void check_activations(const ModelOptions& options, const OpenModel& model) {
  const bool stored = options.dtype.empty() || options.dtype == "stored";
  if (stored && options.activations == "int8") {
    (void)measure_weights(
        model, {.dtype = std::nullopt, .place = {}, .activations = ActivationFormat::kInt8});
  }
}

void check_activations_of(const std::filesystem::path& folder, const ModelOptions& options,
                          const OpenModel& model) {
  try {
    check_activations(options);
    check_activations(options, model);
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("{}: activations (--activations): {}", folder.string(), error.what()));
  }
}

void check_device(const ModelOptions& options) {
  if (options.device == "cpu") {
    return;
  }
  if (options.dtype == "float64") {
    throw ConfigError(fmt::format(
        "dtype float64 runs on the CPU only, not on '{}'; use dtype: float32, or device: cpu",
        options.device));
  }
  if (options.activations == "int8") {
    throw ConfigError(
        fmt::format("int8 activations run on the CPU only, not on '{}'; leave activations out, or "
                    "use device: cpu",
                    options.device));
  }
}

bool parse_prefill_products(const std::string& name, const ModelOptions& options) {
  if (!name.empty() && name != "exact" && name != "library") {
    throw ConfigError(fmt::format("unknown products '{}'; known: exact, library", name));
  }
  if (name != "library") {
    return false;
  }
  if (options.device.rfind("cuda", 0) != 0) {
    throw ConfigError(fmt::format(
        "library is cuBLAS, for device: cuda, not '{}': use that, or exact", options.device));
  }
  if (options.dtype == "float32") {
    throw ConfigError("library multiplies no float32: leave out dtype: float32, or use exact");
  }
  return true;
}

KvFormat parse_kv_dtype(const std::string& name) {
  if (name == "bfloat16") {
    return KvFormat::kBFloat16;
  }
  if (!name.empty() && name != "float32") {
    throw ConfigError(fmt::format("unknown kv_dtype '{}'; known: float32, bfloat16", name));
  }
  return KvFormat::kNative;
}

KvFormat kv_format_of(const ModelOptions& options) {
  const std::optional<KvFormat>& format = options.cache.format;
  if (format && !options.kv_dtype.empty()) {
    throw ConfigError(fmt::format(
        "kv_dtype {} and the cache's format {} are two formats of the same keys and values: leave "
        "one of them out",
        options.kv_dtype, kv_format_name(*format)));
  }
  return format ? *format : parse_kv_dtype(options.kv_dtype);
}

/// What is missing where no CUDA device can be used: of the build, or of the machine.
static const char* missing_cuda() {
  try {
    (void)device_ops(at::Device(at::kCUDA));
  } catch (const Error&) {
    return "this build has no CUDA kernels, since it was made without nvcc";
  } catch (const std::exception&) {
    // LibTorch finds no device, which is known.
  }
  return at::Context::hasCUDART() ? "this machine has no CUDA device, or no driver for it"
                                  : "this build has a LibTorch without CUDA";
}

/// Throws ConfigError for a device of a kind that this build or machine does not have.
static void check_has(const std::string& device) {
  if (device == "mps" && !at::hasMPS()) {
    utsname system{};
    const bool mac = ::uname(&system) == 0 && std::string(system.sysname) == "Darwin";
    throw ConfigError(fmt::format(
        "device 'mps' is an Apple GPU: it needs macOS on Apple silicon{}; use cpu",
        mac ? " and a PyTorch with MPS" : fmt::format(", and this is {}", system.sysname)));
  }
  if (device != "mps" && !at::hasCUDA()) {
    throw ConfigError(fmt::format(
        "device '{}': {}; use cpu ('specdec inspect' counts a GPU's memory without one)", device,
        missing_cuda()));
  }
}

/// "cuda", or "cuda:" and a number of one or two digits.
static bool is_cuda_name(const std::string& name) {
  constexpr size_t kPrefix = 5;
  return name == "cuda" ||
         (name.rfind("cuda:", 0) == 0 && name.size() > kPrefix && name.size() <= kPrefix + 2 &&
          name.find_first_not_of("0123456789", kPrefix) == std::string::npos);
}

at::Device parse_device(const std::string& name) {
  if (name == "cpu") {
    return at::kCPU;
  }
  if (name != "mps" && !is_cuda_name(name)) {
    throw ConfigError(fmt::format("unknown device '{}'; known: cpu, cuda, cuda:N, mps", name));
  }
  check_has(name);
  try {
    const at::Device device(name);
    (void)at::empty({1}, at::TensorOptions().device(device));
    return device;
  } catch (const c10::Error& error) {
    throw ConfigError(
        fmt::format("device '{}' cannot be used: {}", name, error.what_without_backtrace()));
  }
}

std::string gpu_name(const at::Device& device) {
  if (device.is_cpu()) {
    return "none";
  }
  std::error_code failure;
  // The driver's own list: asking CUDA would need headers that a CPU build does not have.
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", failure)) {
    std::ifstream file(gpu.path() / "information");
    std::string line;
    while (std::getline(file, line)) {
      const size_t begin = line.find_first_not_of(" \t", std::string("Model:").size());
      if (line.rfind("Model:", 0) == 0 && begin != std::string::npos) {
        return line.substr(begin);
      }
    }
  }
  return "unknown";
}

LoadOptions load_options(const ModelOptions& options) {
  return {.dtype = parse_dtype(options.dtype),
          .place = placement_on(parse_device(options.device)),
          .activations = parse_activations(options.activations)};
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
