#include "core/formats/pickle/pickled_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/pickle/pickle.h"
#include "core/formats/pickle/zip_archive.h"

namespace specdec {
namespace {

constexpr std::string_view kPickle = "/data.pkl";
constexpr std::string_view kByteOrder = "/byteorder";
constexpr std::string_view kOldBegin = "\x80\x02";  ///< a bare pickle, before PyTorch 1.6

/// Values of a tensor, and one more than its last value's place in the storage; false where 64 bits
/// do not hold them.
bool extent_of(const PickledTensor& tensor, int64_t& values, int64_t& end) {
  values = 1;
  end = tensor.offset;
  for (size_t i = 0; i < tensor.layout.shape.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(values, tensor.layout.shape[i], &values) ||
        __builtin_mul_overflow(std::max<int64_t>(0, tensor.layout.shape[i] - 1), tensor.strides[i],
                               &reach) ||
        __builtin_add_overflow(end, reach, &end)) {
      return false;
    }
  }
  return tensor.offset >= 0 && !__builtin_add_overflow(end, 1, &end);
}

bool is_row_major(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.layout.shape.size(); i-- > 0;) {
    if (tensor.layout.shape[i] != 1 && tensor.strides[i] != expected) {
      return false;
    }
    expected *= tensor.layout.shape[i];
  }
  return true;
}

/// Copies dimension `axis` and those behind it in row-major order; returns where the next goes.
std::byte* copy_strided(const PickledTensor& tensor, size_t axis, const std::byte* from,
                        std::byte* to) {
  const auto wide = static_cast<size_t>(dtype_bytes(tensor.layout.dtype));
  if (axis == tensor.layout.shape.size()) {
    std::memcpy(to, from, wide);
    return to + wide;
  }
  for (int64_t i = 0; i < tensor.layout.shape[axis]; ++i) {
    to = copy_strided(tensor, axis + 1, from + static_cast<size_t>(i * tensor.strides[axis]) * wide,
                      to);
  }
  return to;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The archive's folder, which all its files lie in, or an error.
std::string folder_in(const std::map<std::string, std::span<const std::byte>>& files,
                      const std::string& where) {
  for (const auto& [name, bytes] : files) {
    if (name.size() > kPickle.size() && name.find('/') == name.size() - kPickle.size() &&
        name.compare(name.size() - kPickle.size(), kPickle.size(), kPickle) == 0) {
      return name.substr(0, name.size() - kPickle.size());
    }
  }
  throw WeightsError(where +
                     ": it is a zip archive without a data.pkl, so torch.save did not write it.");
}

/// The values of a tensor in its storage, empty or from the first on; checks that they lie there.
std::span<const std::byte> values_of(const PickledTensor& tensor,
                                     const std::map<std::string, std::span<const std::byte>>& files,
                                     const std::string& folder, const std::string& where) {
  const auto fail = [&](const std::string& problem) {
    throw WeightsError(fmt::format("{}: tensor '{}' of shape [{}] {}.", where, tensor.layout.name,
                                   fmt::join(tensor.layout.shape, ", "), problem));
  };
  const auto storage = files.find(fmt::format("{}/data/{}", folder, tensor.storage));
  if (storage == files.end()) {
    fail(fmt::format("has its values in data/{}, which is missing: copy or download the file again",
                     tensor.storage));
  }
  const int64_t wide = dtype_bytes(tensor.layout.dtype);
  const auto held = static_cast<int64_t>(storage->second.size()) / wide;
  int64_t values = 0;
  int64_t end = 0;
  if (!extent_of(tensor, values, end) || (values > 0 && (end > held || values > held))) {
    fail(fmt::format("does not lie within the {} values of its storage", held));
  }
  return values == 0 ? std::span<const std::byte>()
                     : storage->second.subspan(static_cast<size_t>(tensor.offset * wide));
}

void check_begin(std::span<const std::byte> bytes, const std::string& where) {
  refuse_placeholder(bytes, where);
  if (as_text(bytes).substr(0, kOldBegin.size()) == kOldBegin) {
    throw WeightsError(where +
                       ": PyTorch before 1.6 wrote it, in a form that is not read. Save it again: "
                       "torch.save(torch.load(FILE), FILE).");
  }
}

}  // namespace

PickledFile::PickledFile(const std::filesystem::path& path) : TensorFile(path) {
  const std::string where = path.string();
  check_begin(file_bytes(), where);
  const auto files = read_zip(file_bytes(), where);
  const std::string folder = folder_in(files, where);
  const auto order = files.find(folder + std::string(kByteOrder));
  if (order != files.end() && as_text(order->second) != "little") {
    throw WeightsError(where + ": its numbers are big-endian, which is not read.");
  }
  size_t copied = 0;
  std::vector<TensorEntry> entries;
  PickledTensors pickled = read_pickled_tensors(files.at(folder + std::string(kPickle)), where);
  set_metadata(std::move(pickled.metadata));
  for (PickledTensor& tensor : pickled.tensors) {
    auto bytes = values_of(tensor, files, folder, where);
    if (!bytes.empty()) {
      const size_t size = static_cast<size_t>(tensor.layout.bytes());
      if (!is_row_major(tensor)) {
        copied += size;
        if (copied > file_bytes().size()) {
          throw WeightsError(
              fmt::format("{}: its tensors are views of one another in other orders, which take "
                          "more memory than the file has bytes: save them with .contiguous().",
                          where));
        }
        auto& copy = copies_.emplace_back(std::make_unique<std::byte[]>(size));
        copy_strided(tensor, 0, bytes.data(), copy.get());
        bytes = {copy.get(), size};
      }
      bytes = bytes.first(size);
    }
    entries.push_back({.name = std::move(tensor.layout.name),
                       .dtype = tensor.layout.dtype,
                       .shape = std::move(tensor.layout.shape),
                       .bytes = bytes});
  }
  set_tensors(std::move(entries));
}

}  // namespace specdec
