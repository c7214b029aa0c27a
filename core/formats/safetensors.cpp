#include "core/formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/formats/safetensors_header.h"

namespace specdec {
SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), file_(path) {
  if (file_.bytes().empty()) {
    throw WeightsError(fmt::format("{}: the file is empty. {}", path.string(), kDamagedFile));
  }
  tensors_ = parse_safetensors(file_.bytes(), path.string(), metadata_);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](size_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  if (found == by_name_.end() || tensors_[*found].name != name) {
    return nullptr;
  }
  return &tensors_[*found];
}

bool SafetensorsFile::holds(const TensorEntry& entry) const {
  return !tensors_.empty() && &entry >= tensors_.data() &&
         &entry < tensors_.data() + tensors_.size();
}

void SafetensorsFile::release(const TensorEntry& entry, size_t begin, size_t size) const {
  SPECDEC_CHECK(holds(entry), "{} is not a tensor of {}", entry.name, path_.string());
  begin = std::min(begin, entry.bytes.size());
  release_pages(entry.bytes.subspan(begin, std::min(size, entry.bytes.size() - begin)));
}

}  // namespace specdec
