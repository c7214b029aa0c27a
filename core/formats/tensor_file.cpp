#include "core/formats/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace specdec {

TensorFile::TensorFile(const std::filesystem::path& path) : path_(path), file_(path) {
  if (file_.bytes().empty()) {
    throw WeightsError(
        fmt::format("{}: the file is empty. Copy or download it again.", path.string()));
  }
}

void TensorFile::set_tensors(std::vector<TensorEntry> tensors) {
  tensors_ = std::move(tensors);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](size_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  if (found == by_name_.end() || tensors_[*found].name != name) {
    return nullptr;
  }
  return &tensors_[*found];
}

bool TensorFile::holds(const TensorEntry& entry) const {
  return !tensors_.empty() && &entry >= tensors_.data() &&
         &entry < tensors_.data() + tensors_.size();
}

void TensorFile::release(const TensorEntry& entry, size_t begin, size_t size) const {
  SPECDEC_CHECK(holds(entry), "{} is not a tensor of {}", entry.name, path_.string());
  begin = std::min(begin, entry.bytes.size());
  const auto part = entry.bytes.subspan(begin, std::min(size, entry.bytes.size() - begin));
  const auto file = file_.bytes();
  if (!part.empty() && part.data() >= file.data() && part.data() < file.data() + file.size()) {
    release_pages(part);
  }
}

}  // namespace specdec
