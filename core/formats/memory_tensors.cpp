#include "core/formats/memory_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/formats/safetensors_header.h"

namespace specdec {
namespace {

/// Bytes that a tensor of this dtype and shape has; nothing where 64 bits do not hold their number,
/// or a dimension is negative.
std::optional<size_t> bytes_of_shape(const TensorEntry& tensor) {
  size_t values = 1;
  const auto wide = static_cast<size_t>(dtype_bytes(tensor.dtype));
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(),
                  [](int64_t size) { return size < 0; })) {
    return std::nullopt;
  }
  for (const int64_t size : tensor.shape) {
    const size_t most = std::numeric_limits<size_t>::max() / wide / values;
    if (static_cast<size_t>(size) > most) {
      return std::nullopt;
    }
    values *= static_cast<size_t>(size);
    if (values == 0) {
      return 0;
    }
  }
  return values / static_cast<size_t>(block_values(tensor.dtype)) * wide;
}

}  // namespace

void MemoryTensors::fail(const TensorEntry& tensor, const std::string& problem) const {
  throw WeightsError(fmt::format("{}: tensor '{}' {}.", name_.string(), tensor.name, problem));
}

void MemoryTensors::add(TensorEntry tensor, std::shared_ptr<const void> owner) {
  if (tensor.name.empty()) {
    fail(tensor, "has no name; give it the one that the hub does, such as 'model.norm.weight'");
  }
  if (tensors_.find(tensor.name) != tensors_.end()) {
    fail(tensor, "is added twice");
  }
  const auto bytes = bytes_of_shape(tensor);
  if (!bytes) {
    fail(tensor,
         fmt::format("has shape [{}], which no tensor can have", fmt::join(tensor.shape, ", ")));
  }
  const int64_t block = block_values(tensor.dtype);
  if (block > 1 && (tensor.shape.empty() || tensor.shape.back() % block != 0)) {
    fail(tensor, fmt::format("has shape [{}], but rows of {} are whole blocks of {} values",
                             fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype), block));
  }
  if (tensor.bytes.size() != *bytes) {
    fail(tensor, fmt::format("has {} bytes, but shape [{}] of {} takes {}", tensor.bytes.size(),
                             fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype), *bytes));
  }
  SPECDEC_CHECK(tensor.interleaved_rows == 0, "{}: rows of own tensors are in order", tensor.name);
  if (owner != nullptr) {
    owners_.push_back(std::move(owner));
  }
  std::string name = tensor.name;
  tensors_.emplace(std::move(name), std::move(tensor));
}

void MemoryTensors::add_safetensors(std::span<const std::byte> file, const std::string& where,
                                    const std::shared_ptr<const void>& owner) {
  if (owner != nullptr) {
    owners_.push_back(owner);  // first: some tensors may be added before one is refused
  }
  std::map<std::string, std::string> metadata;
  for (TensorEntry& tensor : parse_safetensors(file, where, metadata)) {
    add(std::move(tensor));
  }
}

const TensorEntry* MemoryTensors::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<const TensorEntry*> MemoryTensors::tensors() const {
  std::vector<const TensorEntry*> all;
  for (const auto& [name, tensor] : tensors_) {
    all.push_back(&tensor);
  }
  return all;
}

}  // namespace specdec
