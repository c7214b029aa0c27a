#include "core/transformer/adapters/lora_adapter.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "core/transformer/adapters/lora_config.h"
#include "core/transformer/adapters/lora_modules.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

constexpr const char* kAdapterFile = "adapter_model.safetensors";
constexpr const char* kPickledFile = "adapter_model.bin";
constexpr std::string_view kModel = "model.";
constexpr const char* kHead = "lm_head";
constexpr const char* kWrappedHead = "language_model.lm_head";

bool remove_prefix(std::string& text, const std::string& prefix) {
  if (text.rfind(prefix, 0) != 0) {
    return false;
  }
  text.erase(0, prefix.size());
  return true;
}

bool remove_suffix(std::string& text, const std::string& suffix) {
  if (text.size() < suffix.size() ||
      text.compare(text.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return false;
  }
  text.resize(text.size() - suffix.size());
  return true;
}

std::shared_ptr<const CheckpointTensors> open_adapter(const std::filesystem::path& folder) {
  std::error_code code;
  for (const char* name : {kAdapterFile, kPickledFile}) {
    if (std::filesystem::exists(folder / name, code)) {
      return std::make_shared<const CheckpointTensors>(folder, name);
    }
  }
  throw WeightsError(
      fmt::format("{}: it holds neither {} nor {}, which peft's save_pretrained writes.",
                  folder.string(), kAdapterFile, kPickledFile));
}

/// Reads the matrices of one adapter's file.
class LoraReader {
 public:
  LoraReader(const std::filesystem::path& folder, const TransformerWeights& base)
      : config_(load_lora_config(folder)),
        base_(base),
        file_(open_adapter(folder)),
        source_(file_, Placement{}) {
    if (std::any_of(base.plan.begin(), base.plan.end(), is_recurrent)) {
      throw WeightsError(fmt::format(
          "{}: adapters of models with recurrent layers are not supported: merge it into the base "
          "(peft's merge_and_unload, then save_pretrained) and name that folder",
          folder.string()));
    }
    for (const LoraModule& module : lora_modules(base)) {
      modules_.emplace(module.name, module);
    }
  }

  std::vector<LoraPair> read() {
    find_tensors();
    std::vector<LoraPair> pairs;
    for (const auto& [path, tensors] : found_) {
      const LoraModule& module = module_of(path);
      check_named(path, module);
      if (tensors.a == nullptr || tensors.b == nullptr) {
        fail(
            "it holds only one of the matrices lora_A and lora_B of {}. The file is incomplete: "
            "save the adapter again.",
            path);
      }
      if (module.matrix != nullptr) {
        pairs.push_back(read_pair(path, module, tensors));
      }
    }
    check_complete();
    return pairs;
  }

  /// Fingerprint of all that was read.
  std::string fingerprint() const {
    return fmt::format("{:016x}", hash_bytes(source_.hash(), factors_.data(), factors_.size()));
  }

 private:
  struct Tensors {
    const TensorEntry* a = nullptr;
    const TensorEntry* b = nullptr;
  };

  template <class... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    throw WeightsError(fmt::format("{}/{}: {}", file_->folder().string(), kAdapterFile,
                                   fmt::format(format, std::forward<Arguments>(arguments)...)));
  }

  void find_tensors() {
    for (const TensorEntry* entry : file_->tensors()) {
      std::string path = entry->name;
      (void)remove_prefix(path, "base_model.model.");
      if (is_other_input(path)) {
        continue;
      }
      if (remove_suffix(path, ".lora_A.weight")) {
        found_[path].a = entry;
      } else if (remove_suffix(path, ".lora_B.weight")) {
        found_[path].b = entry;
      } else {
        refuse(*entry);
      }
    }
    if (found_.empty()) {
      fail("it holds no matrices lora_A and lora_B of a language model.");
    }
  }

  [[noreturn]] void refuse(const TensorEntry& entry) const {
    if (entry.name.find("lora_embedding_") != std::string::npos) {
      fail(
          "{}: adapters of the embedding are not supported. Merge it into its base with peft's "
          "merge_and_unload.",
          entry.name);
    }
    fail("{}: is neither a module's lora_A.weight nor its lora_B.weight, and would be left out.",
         entry.name);
  }

  const LoraModule& module_of(const std::string& path) const {
    const auto found = modules_.find(lora_module_name(path));
    if (found == modules_.end()) {
      fail(
          "it adapts {}, which the base model ({}, {} layers) does not have, or not as a matrix "
          "that adapters can be applied to.{}",
          path, base_.config.family, base_.config.num_layers, base_text());
    }
    return found->second;
  }

  std::string base_text() const {
    return config_.base.empty() ? ""
                                : fmt::format(" The adapter was trained on '{}'.", config_.base);
  }

  void check_named(const std::string& path, const LoraModule& module) const {
    if (!config_.adapts(path, module.layer)) {
      fail(
          "it holds matrices of {}, which target_modules, exclude_modules or layers_to_transform "
          "of adapter_config.json leave out: the files do not belong together.",
          path);
    }
  }

  LoraPair read_pair(const std::string& path, const LoraModule& module, const Tensors& tensors) {
    const int64_t rank = config_.rank_of(path);
    const double factor = config_.factor_of(path);
    check_shape(*tensors.a, {rank, module.matrix->in()});
    check_shape(*tensors.b, {module.rows, rank});
    factors_ += fmt::format("{}={};", path, factor);
    LoraPair pair{.matrix = module.matrix, .first = module.first, .a = {}, .b = {}};
    pair.a = source_.load(tensors.a->name, tensors.a->shape, base_.compute_dtype());
    pair.b = source_.load(tensors.b->name, tensors.b->shape, base_.compute_dtype()) * factor;
    return pair;
  }

  void check_shape(const TensorEntry& entry, const std::vector<int64_t>& wanted) const {
    if (entry.shape != wanted) {
      fail("{} is [{}], but should be [{}] by adapter_config.json and the base model.{}",
           entry.name, fmt::join(entry.shape, ", "), fmt::join(wanted, ", "), base_text());
    }
  }

  /// Fails unless every module that the config names is there.
  void check_complete() const {
    const std::string prefix = path_prefix();
    for (const auto& [name, module] : modules_) {
      const bool is_head = name == kHead;
      const std::string path = is_head ? name : prefix + name.substr(kModel.size());
      const bool found = found_.contains(path) || (is_head && found_.contains(kWrappedHead));
      if (module.matrix != nullptr && !found && config_.adapts(path, module.layer)) {
        fail(
            "the matrices lora_A and lora_B of {} are missing, which target_modules of "
            "adapter_config.json names.",
            path);
      }
    }
  }

  /// What the file's paths begin with where lora_modules has "model.".
  std::string path_prefix() const {
    for (const auto& [path, tensors] : found_) {
      if (const std::string name = lora_module_name(path); name != kHead) {
        return path.substr(0, path.size() - (name.size() - kModel.size()));
      }
    }
    return std::string(kModel);
  }

  LoraConfig config_;
  const TransformerWeights& base_;
  std::shared_ptr<const CheckpointTensors> file_;
  TensorSource source_;
  std::map<std::string, LoraModule> modules_;
  std::map<std::string, Tensors> found_;  ///< by path in the hub's model
  std::string factors_;
};

}  // namespace

std::shared_ptr<const LoraAdapter> load_lora(const std::filesystem::path& folder,
                                             std::shared_ptr<const TransformerWeights> base) {
  LoraReader reader(folder, *base);
  auto adapter = std::make_shared<LoraAdapter>();
  adapter->name = folder.string();
  adapter->pairs = reader.read();
  adapter->fingerprint = reader.fingerprint();
  adapter->base = std::move(base);
  return adapter;
}

}  // namespace specdec
