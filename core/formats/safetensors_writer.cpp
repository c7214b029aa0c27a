#include "core/formats/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_header.h"

namespace specdec {
namespace {

// Widest elements first, so that every tensor is aligned although the format has no padding.
template <class Tensor>
void sort_by_width(std::vector<Tensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
}

// The JSON header, padded with spaces so that the data begins aligned.
std::string header_text(const std::vector<TensorLayout>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header[std::string(kMetadataKey)] = metadata;
  }
  std::set<std::string_view> names = {kMetadataKey};
  uint64_t offset = 0;
  for (const TensorLayout& tensor : tensors) {
    SPECDEC_CHECK(names.insert(tensor.name).second, "tensor name {} is taken", tensor.name);
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = json_text(header);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorLayout> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), tensors_(std::move(tensors)) {
  sort_by_width(tensors_);
  const std::string header = header_text(tensors_, metadata);
  std::array<std::byte, kLengthBytes> length{};
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.at(i) = static_cast<std::byte>(static_cast<uint64_t>(header.size()) >> (8 * i));
  }
  file_.write(length);
  file_.write(header);
  for (const TensorLayout& tensor : tensors_) {
    left_ += tensor.bytes();
  }
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  SPECDEC_CHECK(bytes.size() <= left_, "SafetensorsWriter: more bytes than the tensors have");
  left_ -= bytes.size();
  file_.write(bytes);
}

void SafetensorsWriter::commit() {
  SPECDEC_CHECK(left_ == 0, "SafetensorsWriter: {} bytes are missing", left_);
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorToWrite> order(tensors.begin(), tensors.end());
  sort_by_width(order);
  std::vector<TensorLayout> layouts;
  for (const TensorToWrite& tensor : order) {
    layouts.push_back({tensor.name, tensor.dtype, tensor.shape});
    SPECDEC_CHECK(layouts.back().bytes() == tensor.bytes.size(),
                  "{}: shape [{}] needs {} bytes, got {}", tensor.name,
                  fmt::join(tensor.shape, ", "), layouts.back().bytes(), tensor.bytes.size());
  }
  SafetensorsWriter file(path, std::move(layouts), metadata);
  for (const TensorToWrite& tensor : order) {
    file.write(tensor.bytes);
  }
  file.commit();
}

}  // namespace specdec
