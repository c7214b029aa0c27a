#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/pickle/pickled_file.h"
#include "core/formats/safetensors.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kPickledFile = "pytorch_model.bin";
constexpr const char* kPickledIndexFile = "pytorch_model.bin.index.json";

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
void check_shard(const TensorFile& file, const std::map<std::string, std::string>& index,
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

std::unique_ptr<const TensorFile> open_file(const std::filesystem::path& path) {
  const auto extension = path.extension();
  if (extension == ".bin" || extension == ".pt") {
    return std::make_unique<const PickledFile>(path);
  }
  return std::make_unique<const SafetensorsFile>(path);
}

/// The first of a folder's files that is there.
std::optional<std::filesystem::path> first_of(const std::filesystem::path& folder,
                                              std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (has_entry(folder / name)) {
      return folder / name;
    }
  }
  return std::nullopt;
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
  const auto found = first_of(folder, {kWeightsFile, kIndexFile, kPickledFile, kPickledIndexFile});
  if (!found) {
    throw WeightsError(
        fmt::format("{}: it holds none of {}, {}, {} and {}: files of other names are not looked "
                    "for. Name a GGUF file itself instead of "
                    "its folder; other formats must be converted to safetensors first.",
                    folder.string(), kWeightsFile, kIndexFile, kPickledFile, kPickledIndexFile));
  }
  if (found->extension() != ".json") {
    open(*found);
    return;
  }
  const std::filesystem::path& index_path = *found;
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
      open(folder / shard);
      check_shard(*files_.back(), index, index_path);
    }
  }
  for (const auto& [tensor, shard] : index) {
    if (find(tensor) == nullptr && !metadata_.contains(tensor)) {  // else of several tensors
      missing_.emplace_back(tensor, shard);
    }
  }
}

CheckpointTensors::CheckpointTensors(const std::filesystem::path& folder, const std::string& file)
    : folder_(folder) {
  open(folder / file);
}

void CheckpointTensors::open(const std::filesystem::path& path) {
  files_.push_back(open_file(path));
  const auto& more = files_.back()->metadata();
  metadata_.insert(more.begin(), more.end());
}

const std::map<std::string, std::string>& TensorFiles::metadata() const {
  static const std::map<std::string, std::string> kNone;
  return kNone;
}

const TensorEntry* CheckpointTensors::find(std::string_view name) const {
  for (const auto& file : files_) {
    if (const TensorEntry* entry = file->find(name)) {
      return entry;
    }
  }
  return nullptr;
}

std::vector<const TensorEntry*> CheckpointTensors::tensors() const {
  std::vector<const TensorEntry*> all;
  for (const auto& file : files_) {
    for (const TensorEntry& entry : file->tensors()) {
      all.push_back(&entry);
    }
  }
  return all;
}

void CheckpointTensors::release(const TensorEntry& entry, size_t begin, size_t size) const {
  const auto file = std::find_if(files_.begin(), files_.end(),
                                 [&entry](const auto& one) { return one->holds(entry); });
  SPECDEC_CHECK(file != files_.end(), "{} is not a tensor of {}", entry.name, folder_.string());
  (*file)->release(entry, begin, size);
}

}  // namespace specdec
