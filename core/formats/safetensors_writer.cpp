#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/json_text.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_header.h"

namespace specdec {
namespace {

// Widest elements first, so that every tensor is aligned although the format has no padding.
std::vector<const TensorToWrite*> aligned_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) {
    order.push_back(&tensor);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
  });
  return order;
}

// The JSON header, padded with spaces so that the data begins aligned.
std::string header_text(const std::vector<const TensorToWrite*>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header[std::string(kMetadataKey)] = metadata;
  }
  std::set<std::string_view> names = {kMetadataKey};
  int64_t offset = 0;
  for (const TensorToWrite* tensor : tensors) {
    SPECDEC_CHECK(names.insert(tensor->name).second, "tensor name {} is taken", tensor->name);
    const auto bytes = std::accumulate(tensor->shape.begin(), tensor->shape.end(),
                                       dtype_bytes(tensor->dtype), std::multiplies<>());
    SPECDEC_CHECK(bytes == static_cast<int64_t>(tensor->bytes.size()),
                  "{}: shape [{}] needs {} bytes, got {}", tensor->name,
                  fmt::join(tensor->shape, ", "), bytes, tensor->bytes.size());
    header[tensor->name] = {{"dtype", dtype_name(tensor->dtype)},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = json_text(header);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto order = aligned_order(tensors);
  const std::string header = header_text(order, metadata);
  std::array<std::byte, kLengthBytes> length{};
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.at(i) = static_cast<std::byte>(static_cast<uint64_t>(header.size()) >> (8 * i));
  }
  AtomicFile file(path);
  file.write(length);
  file.write(header);
  for (const TensorToWrite* tensor : order) {
    file.write(tensor->bytes);
  }
  file.commit();
}

}  // namespace specdec
