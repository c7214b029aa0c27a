#include "core/families/limited_model.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/loading.h"
#include "core/families/model_size.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/writable_file.h"
#include "core/hash.h"
#include "core/hub_cache.h"
#include "core/transformer/paging/layer_file.h"
#include "core/transformer/paging/layer_memory.h"
#include "core/transformer/paging/layer_pager.h"
#include "core/transformer/paging/residency.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> bytes_of_layers(const MeasuredModel& sizes) {
  std::vector<int64_t> bytes;
  for (const auto& layer : sizes.layers) {
    bytes.push_back(stored_layer_bytes(layer));
  }
  return bytes;
}

/// Bytes of what is always in memory: all but the layers' matrices.
int64_t other_bytes(const MeasuredModel& sizes) {
  int64_t bytes = vector_bytes(sizes);
  MeasuredModel rest = sizes;
  rest.layers.clear();
  for (const MatrixSize* matrix : distinct_matrices(rest)) {
    for (const LinearPart& part : matrix->parts) {
      bytes += packed_bytes(part, matrix->columns, matrix->form);
    }
  }
  return bytes;
}

/// Whether a file of a checkpoint's folder decides its weights.
bool holds_weights(const fs::path& file) {
  return file.extension() == ".safetensors" || file.filename() == "config.json";
}

/// Files that the weights are in.
std::vector<fs::path> weight_files(const fs::path& model) {
  std::error_code code;
  const bool is_folder = fs::is_directory(model, code);
  if (!is_folder && !fs::is_regular_file(model, code)) {
    throw ConfigError(fmt::format(
        "{}: a memory limit needs a model in files, whose layers are packed into another file; "
        "leave out the limit",
        model.string()));
  }
  const fs::path folder = is_folder ? model : fs::absolute(model).parent_path();
  const std::string first = first_of_split(model.filename().string());
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& file = entry.path();
    if (is_folder ? holds_weights(file) : first_of_split(file.filename().string()) == first) {
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// How the numbers of a form lie; "" for the CPU's, whose files said nothing before there were
/// others. Files that said "in fragments of 16 x 64" held rows of some formats.
std::string form_text(const LinearForm& form) {
  if (form.layout == WeightLayout::kPanels) {
    return {};
  }
  return form.is_arranged ? " in fragments of 16 x 64 in each format" : " in rows";
}

/// Says which weights these are, in which formats.
std::string model_text(const OpenModel& model, const MeasuredModel& sizes) {
  std::string text = model.description.text;
  for (const fs::path& file : weight_files(model.tensors->folder())) {
    std::error_code code;
    const auto size = fs::file_size(file, code);
    const auto written = code ? fs::file_time_type() : fs::last_write_time(file, code);
    if (code) {
      throw WeightsError(fmt::format("{}: cannot be looked at: {}", file.string(), code.message()));
    }
    text += fmt::format("\n{} {} {}", file.filename().string(), size,
                        written.time_since_epoch().count());
  }
  for (const auto& layer : sizes.layers) {
    visit_matrices(layer, [&text](const MatrixSize& matrix) {
      text += fmt::format("\n{}{}", matrix.columns, form_text(matrix.form));
      for (const LinearPart& part : matrix.parts) {
        text += fmt::format(" {} {}", part.out, format_name(part.format));
      }
    });
  }
  return text;
}

/// Removes what programs left that were killed while they wrote this file: nobody has written to it
/// for an hour.
void remove_leftovers(const fs::path& file) {
  const std::string begin = file.filename().string() + ".";
  constexpr size_t kRandomLetters = 6;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), code)) {
    const std::string name = entry.path().filename().string();
    const bool is_temporary =
        name.rfind(begin, 0) == 0 && name.size() == begin.size() + kRandomLetters;
    if (is_temporary && fs::file_time_type::clock::now() - fs::last_write_time(entry, code) >
                            std::chrono::hours(1)) {
      fs::remove(entry.path(), code);
    }
  }
}

/// Packs and writes the layers, one in memory at a time: the host's.
void write_layer_file(const OpenModel& model, const LoadOptions& options, const fs::path& path,
                      const LayerFileKey& key) {
  remove_leftovers(path);
  LayerFileWriter writer(path, key);
  const Placement place = {.device = at::kCPU, .layout = options.place.layout};
  TensorSource source(model.tensors, place);
  const auto rest =
      load_from<Linear>(source, model.description, {.dtype = options.dtype, .place = place},
                        [&writer](const LayerToLoad& layer) {
                          writer.add(layer.load<Linear>());
                          return LayerWeights();
                        });
  writer.finish({rest->fingerprint, rest->weights_fingerprint});
}

std::shared_ptr<LayerFile> open_layers(const OpenModel& model, const LoadOptions& options,
                                       const fs::path& path, const LayerFileKey& key) {
  std::shared_ptr<LayerFile> file = LayerFile::open(path, key);
  if (file == nullptr) {
    write_layer_file(model, options, path, key);
    file = LayerFile::open(path, key);
  }
  if (file == nullptr) {
    throw Error(fmt::format(
        "{}: was written, and another program has replaced it. Name another file for each model.",
        path.string()));
  }
  return file;
}

/// Reads layers that stay in memory: the host's, or a device's.
class LayerReader {
 public:
  LayerReader(std::shared_ptr<LayerFile> file, std::shared_ptr<CopyQueue> copies)
      : file_(std::move(file)), copies_(std::move(copies)) {}

  std::shared_ptr<std::byte> read(int64_t layer) {
    const int64_t bytes = file_->bytes(layer);
    if (copies_ == nullptr) {
      auto memory = layer_memory(bytes);
      file_->read(layer, {memory.get(), static_cast<size_t>(bytes)});
      return memory;
    }
    if (pinned_bytes_ < bytes) {
      pinned_ = copies_->pinned(bytes);
      pinned_bytes_ = bytes;
    }
    file_->read(layer, {pinned_.get(), static_cast<size_t>(bytes)});
    auto memory = copies_->on_device(bytes);
    copies_->copy(memory.get(), pinned_.get(), bytes);
    copies_->wait(copies_->mark());
    return memory;
  }

 private:
  std::shared_ptr<LayerFile> file_;
  std::shared_ptr<CopyQueue> copies_;
  std::shared_ptr<std::byte> pinned_;
  int64_t pinned_bytes_ = 0;
};

/// All but the layers on disk from the checkpoint and the layer file.
std::shared_ptr<const TransformerWeights> load_over(const std::shared_ptr<LayerFile>& file,
                                                    const Residency& residency,
                                                    const OpenModel& model,
                                                    const LoadOptions& options,
                                                    const LayerPager::Copies& copies) {
  std::vector<int64_t> on_disk;
  std::vector<std::shared_ptr<std::byte>> memory(residency.in_memory.size());
  {
    LayerReader reader(file, copies.front());  // the pager takes pinned memory after it
    for (size_t i = 0; i < memory.size(); ++i) {
      if (residency.in_memory[i]) {
        memory[i] = reader.read(static_cast<int64_t>(i));
      } else {
        on_disk.push_back(static_cast<int64_t>(i));
      }
    }
  }
  const auto pager = std::make_shared<LayerPager>(file, std::move(on_disk), copies);
  TensorSource source(model.tensors, options.place);
  int64_t next = 0;
  const auto make_layer = [&](const LayerToLoad& layer) {
    layer.source.leave_out_bytes();  // they come from the file
    const int64_t number = next++;
    const bool stays = residency.in_memory[static_cast<size_t>(number)];
    const auto& place = stays ? memory[static_cast<size_t>(number)] : pager->memory(number);
    LayerWeights weights = layer_in(place, layer.load<MatrixSize>(), options.place.device);
    weights.in_source = stays ? -1 : number;
    return weights;
  };
  auto weights = load_from<Linear>(source, model.description, options, make_layer);
  weights->source = pager;
  weights->fingerprint = file->names().fingerprint;
  weights->weights_fingerprint = file->names().weights_fingerprint;
  return weights;
}

/// Which layers of a model are on disk, and in which file.
struct LimitedLayers {
  LayerFileKey key;
  Residency residency;
  fs::path file = {};  ///< "" = all layers are in memory

  bool are_in_memory() const { return file.empty(); }
};

LimitedLayers plan_within(const OpenModel& model, const LoadOptions& options,
                          const WeightLimit& limit) {
  require_config(!options.place.device.is_mps(),
                 "a memory limit is for models on the CPU and on CUDA: layers on disk are not "
                 "supported on Apple GPUs. Use device: cpu, or leave out the limit.");
  const auto sizes = measured(model, options);
  LimitedLayers layers{.key = {.model = {}, .layer_bytes = bytes_of_layers(*sizes)},
                       .residency = {}};
  layers.residency = plan_residency(layers.key.layer_bytes, other_bytes(*sizes), limit.bytes);
  const std::vector<bool>& in_memory = layers.residency.in_memory;
  if (std::find(in_memory.begin(), in_memory.end(), false) != in_memory.end()) {
    layers.key.model = model_text(model, *sizes);
    layers.file = fs::absolute(limit.layer_file.empty() ? default_layer_file(model, options)
                                                        : limit.layer_file);
  }
  return layers;
}

}  // namespace

fs::path default_layer_file(const OpenModel& model, const LoadOptions& options) {
  fs::path name = model.tensors->folder();
  const std::string text = fmt::format("{}|{}{}", fs::absolute(name).lexically_normal().string(),
                                       options.dtype ? static_cast<int>(*options.dtype) : -1,
                                       form_text({.layout = options.place.layout}));
  name = name.has_filename() ? name : name.parent_path();
  return user_cache_folder() / "specdec" /
         fmt::format("{}-{:016x}.layers", name.filename().string(),
                     hash_bytes(kHashStart, text.data(), text.size()));
}

std::shared_ptr<const TransformerWeights> load_model_within(const OpenModel& model,
                                                            const LoadOptions& options,
                                                            const WeightLimit& limit) {
  const LimitedLayers layers = plan_within(model, options, limit);
  if (layers.are_in_memory()) {
    return load_model(model, options);
  }
  std::error_code code;
  fs::create_directories(layers.file.parent_path(), code);  // else writing says what is wrong
  LayerPager::Copies copies;
  std::ranges::generate(copies, [&] { return limit.copies(options.place.device); });
  return load_over(open_layers(model, options, layers.file, layers.key), layers.residency, model,
                   options, copies);
}

void check_model_within(const OpenModel& model, const LoadOptions& options,
                        const WeightLimit& limit) {
  const LimitedLayers layers = plan_within(model, options, limit);
  if (!layers.are_in_memory() && LayerFile::open(layers.file, layers.key) == nullptr) {
    check_can_write(layers.file);
  }
}

}  // namespace specdec
