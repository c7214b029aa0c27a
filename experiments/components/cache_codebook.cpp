#include "experiments/components/cache_codebook.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/safetensors.h"
#include "core/hash.h"
#include "core/kernels/hadamard.h"
#include "core/kernels/stored_rows.h"
#include "experiments/config/output_path.h"

namespace specdec {
namespace {

/// Numbers are divided by the root mean square of their 32, so none is larger than its root.
constexpr double kMostLevel = 6.0;
constexpr const char* kMakeAgain = "make it with 'specdec score MODEL TEXT --calibrate FILE'";

/// Advice to make a codebook for a cache with this rotation.
std::string make_again(KvRotation rotation) {
  return rotation == KvRotation::kHadamard
             ? "make it with 'specdec score MODEL TEXT --calibrate FILE --rotation hadamard'"
             : kMakeAgain;
}

std::string levels_name(size_t layer) { return fmt::format("layers.{}.levels", layer); }

/// The metadata of a codebook's file.
class CodebookHeader {
 public:
  explicit CodebookHeader(const SafetensorsFile& file) : file_(file) {}

  const std::string& text(const char* key) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) {
      fail(fmt::format("has no '{}' in its metadata", key));
    }
    return found->second;
  }
  /// Number of the value among those that there may be.
  size_t one_of(const char* key, const std::vector<std::string>& values) const {
    const auto found = std::find(values.begin(), values.end(), text(key));
    if (found == values.end()) {
      fail(fmt::format("unknown {} '{}'", key, text(key)));
    }
    return static_cast<size_t>(found - values.begin());
  }
  int64_t number(const char* key) const {
    const std::string& digits = text(key);
    int64_t value = 0;
    const auto end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, value).ptr != end || value < 0 || digits.empty()) {
      fail(fmt::format("{} '{}' is no number", key, digits));
    }
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: is no codebook of a cache: {}; {}", file_.path().string(),
                                   what, kMakeAgain));
  }

 private:
  const SafetensorsFile& file_;
};

const std::vector<std::string>& rotation_names() {
  static const std::vector<std::string> names = {"none", "hadamard"};
  return names;
}

const std::vector<std::string>& weights_names() {
  static const std::vector<std::string> names = {"equal", "by_magnitude"};
  return names;
}

Tensor read_levels(const TensorEntry& entry, const CodebookHeader& header) {
  const Tensor levels = entry.dtype == DType::kF32 ? mapped_tensor(entry).clone() : Tensor();
  if (!levels.defined() || levels.dim() != 3 || levels.size(0) != 2 ||
      levels.size(2) != kQ3Levels || !(levels.abs() <= kMostLevel).all().item<bool>() ||
      !(levels.diff() >= 0).all().item<bool>()) {
    header.fail(
        fmt::format("{} should be [2, kv heads, {}] float32, ascending numbers from {} to {}",
                    entry.name, kQ3Levels, -kMostLevel, kMostLevel));
  }
  return levels;
}

}  // namespace

void CacheCodebook::give_to(std::vector<LayerKv>& layers) const {
  const auto refuse = [&](const std::string& difference) {
    throw Error(fmt::format("{}: holds the levels of another model: {}; {}", file.string(),
                            difference, make_again(rotation)));
  };
  if (layers.size() != levels.size()) {
    refuse(fmt::format("{} layers, not {}", levels.size(), layers.size()));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool owns = layers[i].source_layer < 0 && layers[i].state_size == 0;
    if (owns != levels[i].defined() || (owns && levels[i].size(1) != layers[i].kv_heads)) {
      refuse(fmt::format("layer {} has {} heads with keys and values of their own there, not {}", i,
                         levels[i].defined() ? levels[i].size(1) : 0,
                         owns ? layers[i].kv_heads : 0));
    }
    layers[i].levels = levels[i];
  }
}

std::string CacheCodebook::fingerprint() const {
  uint64_t hash = kHashStart;
  for (const at::Tensor& layer : levels) {
    if (layer.defined()) {
      hash = hash_bytes(hash, layer.const_data_ptr(), layer.nbytes());
    }
  }
  return fmt::format("{:016x}", hash);
}

void CacheCodebook::check_model(const std::string& fingerprint) const {
  if (model != fingerprint) {
    throw Error(
        fmt::format("{}: holds levels that were calibrated for the weights {}, not for {}; {}",
                    file.string(), model, fingerprint, make_again(rotation)));
  }
}

CacheCodebook read_cache_codebook(const std::filesystem::path& file) {
  const SafetensorsFile stored(file);
  const CodebookHeader header(stored);
  CacheCodebook codebook{
      .file = file,
      .model = header.text("model"),
      .rotation = static_cast<KvRotation>(header.one_of("rotation", rotation_names())),
      .weights = static_cast<LevelWeights>(header.one_of("weights", weights_names())),
      .tokens = header.number("tokens"),
      .levels = {}};
  constexpr int64_t kMostLayers = 1 << 16;
  const int64_t layers = header.number("layers");
  size_t read = 0;
  for (int64_t layer = 0; layer < std::min(layers, kMostLayers); ++layer) {
    const TensorEntry* entry = stored.find(levels_name(static_cast<size_t>(layer)));
    read += entry == nullptr ? 0 : 1;
    codebook.levels.push_back(entry == nullptr ? Tensor() : read_levels(*entry, header));
  }
  if (layers > kMostLayers || read != stored.tensors().size()) {
    header.fail(fmt::format("{} layers beside {} tensors, {} of them levels", layers,
                            stored.tensors().size(), read));
  }
  return codebook;
}

void write_cache_codebook(const std::filesystem::path& file, const CacheCodebook& codebook) {
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < codebook.levels.size(); ++i) {
    const Tensor& levels = codebook.levels[i];
    if (levels.defined()) {
      tensors.push_back({levels_name(i), DType::kF32, levels.sizes().vec(),
                         std::as_bytes(std::span(levels.const_data_ptr<float>(),
                                                 static_cast<size_t>(levels.numel())))});
    }
  }
  write_safetensors(file, tensors,
                    {{"model", codebook.model},
                     {"rotation", rotation_names()[static_cast<size_t>(codebook.rotation)]},
                     {"weights", weights_names()[static_cast<size_t>(codebook.weights)]},
                     {"tokens", std::to_string(codebook.tokens)},
                     {"layers", std::to_string(codebook.levels.size())}});
}

void check_codebook_output(const std::filesystem::path& file) {
  constexpr size_t kMostBytes = size_t{1} << 16U;  // that a codebook has
  if (const std::string why = refused_output(file); !why.empty()) {
    throw ConfigError("--calibrate: " + why);
  }
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) {
    try {
      (void)read_cache_codebook(file);
    } catch (const Error&) {
      throw ConfigError(fmt::format(
          "--calibrate: {} is there and holds no levels, so it is not overwritten: name another "
          "file",
          file.string()));
    }
  }
  AtomicFile(file).write(std::string(kMostBytes, ' '));  // and takes it back
}

void CodebookCalibration::add(const KvStore& cache, RowId row, const std::vector<int64_t>& layers) {
  for (size_t i = layers_.size(); i < layers.size(); ++i) {
    layers_.push_back({layers[i], {}, {}});
  }
  for (Layer& layer : layers_) {
    const auto numbers = cache.key_values(layer.number, row);
    add_heads(numbers.first, layer.keys);
    add_heads(numbers.second, layer.values);
  }
  tokens_ += cache.length(row);
}

void CodebookCalibration::add_heads(const Tensor& numbers,
                                    std::vector<LevelCalibration>& heads) const {
  const Tensor plain = numbers.to(at::kCPU, at::kFloat).contiguous().clone();
  const int64_t head_dim = plain.size(2);
  heads.resize(static_cast<size_t>(plain.size(0)), LevelCalibration(weights_));
  float* head = plain.mutable_data_ptr<float>();
  for (LevelCalibration& calibration : heads) {
    for (int64_t token = 0; token < plain.size(1); ++token, head += head_dim) {
      if (rotation_ == KvRotation::kHadamard) {
        hadamard(head, head_dim);
      }
      calibration.add({head, static_cast<size_t>(head_dim)});
    }
  }
}

CacheCodebook CodebookCalibration::codebook(int64_t layers, const std::string& fingerprint) const {
  CacheCodebook codebook{.model = fingerprint,
                         .rotation = rotation_,
                         .weights = weights_,
                         .tokens = tokens_,
                         .levels = std::vector<Tensor>(static_cast<size_t>(layers))};
  for (const Layer& layer : layers_) {
    const auto heads = static_cast<int64_t>(layer.keys.size());
    const Tensor levels = at::empty({2, heads, kQ3Levels}, at::kFloat);
    float* to = levels.mutable_data_ptr<float>();
    for (const auto* part : {&layer.keys, &layer.values}) {
      for (const LevelCalibration& head : *part) {
        const auto best = head.levels();
        to = std::copy(best.begin(), best.end(), to);
      }
    }
    codebook.levels[static_cast<size_t>(layer.number)] = levels;
  }
  return codebook;
}

}  // namespace specdec
