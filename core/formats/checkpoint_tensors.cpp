#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// A shard is a file beside the index: a name that leads elsewhere is refused.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Tensor name -> file name of its shard.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const std::string where = path.string();
  const json index = parse_strict_json(read_file(path), where);
  const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
  if (weight_map == index.end() || !weight_map->is_object()) {
    throw WeightsError(where + ": it has no \"weight_map\" object.");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !is_plain_name(shard.get_ref<const std::string&>())) {
      throw WeightsError(
          fmt::format("{}: tensor \"{}\": {} is not the plain name of a file in the "
                      "same folder.",
                      where, tensor, shard.dump()));
    }
    shards.emplace(tensor, shard.get<std::string>());
  }
  if (shards.empty()) {
    throw WeightsError(where + ": its weight_map names no tensors.");
  }
  return shards;
}

/// A tensor that the index puts elsewhere might be of another checkpoint; one that it does not name
/// (a buffer such as rotary_emb.inv_freq) is there for whoever asks for it.
void check_shard(const SafetensorsFile& file, const std::map<std::string, std::string>& index,
                 const std::filesystem::path& index_path) {
  const std::string shard = file.path().filename().string();
  for (const TensorEntry& entry : file.tensors()) {
    const auto found = index.find(entry.name);
    if (found != index.end() && found->second != shard) {
      throw WeightsError(
          fmt::format("{}: tensor \"{}\" is in {}, but the index says {}. Are index "
                      "and shards of the same checkpoint?",
                      index_path.string(), entry.name, shard, found->second));
    }
  }
}

/// PyTorch's own files are programs that are run when they are read.
void refuse_pickled(const std::filesystem::path& folder) {
  std::error_code code;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (std::filesystem::exists(folder / name, code)) {
      throw WeightsError(fmt::format(
          "{}: its weights are in PyTorch's own format ({}), which is not read. Convert them: load "
          "the model with transformers and call save_pretrained(..., safe_serialization=True).",
          folder.string(), name));
    }
  }
}

}  // namespace

CheckpointTensors::CheckpointTensors(const std::filesystem::path& folder) : folder_(folder) {
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code)) {
    throw WeightsError(
        fmt::format("{}: no such folder. Give the folder of a Hugging Face checkpoint, "
                    "which holds config.json and {}.",
                    folder.string(), kWeightsFile));
  }
  if (std::filesystem::exists(folder / kWeightsFile, code)) {
    files_.emplace_back(folder / kWeightsFile);
    return;
  }
  const std::filesystem::path index_path = folder / kIndexFile;
  if (!std::filesystem::exists(index_path, code)) {
    refuse_pickled(folder);
    throw WeightsError(
        fmt::format("{}: it holds neither {} nor {}. Name a GGUF file itself instead of "
                    "its folder; other formats must be converted to safetensors first.",
                    folder.string(), kWeightsFile, kIndexFile));
  }
  const auto index = read_index(index_path);
  std::map<std::string, bool> opened;
  for (const auto& [tensor, shard] : index) {
    if (!std::exchange(opened[shard], true)) {
      if (!std::filesystem::exists(folder / shard, code)) {
        throw WeightsError(
            fmt::format("{}: the shard {}, which holds \"{}\", is missing. Download it "
                        "into the same folder.",
                        index_path.string(), shard, tensor));
      }
      files_.emplace_back(folder / shard);
      check_shard(files_.back(), index, index_path);
    }
  }
  for (const auto& [tensor, shard] : index) {
    if (find(tensor) == nullptr) {
      missing_.emplace_back(tensor, shard);
    }
  }
}

CheckpointTensors::CheckpointTensors(const std::filesystem::path& folder, const std::string& file)
    : folder_(folder) {
  files_.emplace_back(folder / file);
}

const TensorEntry* CheckpointTensors::find(std::string_view name) const {
  for (const SafetensorsFile& file : files_) {
    if (const TensorEntry* entry = file.find(name)) {
      return entry;
    }
  }
  return nullptr;
}

std::vector<const TensorEntry*> CheckpointTensors::tensors() const {
  std::vector<const TensorEntry*> all;
  for (const SafetensorsFile& file : files_) {
    for (const TensorEntry& entry : file.tensors()) {
      all.push_back(&entry);
    }
  }
  return all;
}

void CheckpointTensors::release(const TensorEntry& entry, size_t begin, size_t size) const {
  const auto file = std::find_if(files_.begin(), files_.end(),
                                 [&entry](const SafetensorsFile& one) { return one.holds(entry); });
  SPECDEC_CHECK(file != files_.end(), "{} is not a tensor of {}", entry.name, folder_.string());
  file->release(entry, begin, size);
}

}  // namespace specdec
