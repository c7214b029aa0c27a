#include "core/transformer/paging/layer_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/checked_blob.h"
#include "core/hash.h"
#include "core/snapshot_error.h"

namespace specdec {
namespace {

using json = nlohmann::json;

// A file: the name of its kind, then each layer from a multiple of kLayerAlignment on, then the
// table of layers, and where that begins (int64, this machine's order of bytes, as the layers).
constexpr std::string_view kMagic = "specdec layers of a model\n";
constexpr BlobKind kTable = {
    .magic = "specdec table of layers\n", .version = 1, .name = "table of layers"};
constexpr int64_t kLargestTable = int64_t{64} << 20U;

/// Says which numbers lie where in a panel: another one makes other files.
constexpr int64_t kPacking = kPanel;

int64_t file_size(std::ifstream& file) {
  file.seekg(0, std::ios::end);
  return static_cast<int64_t>(file.tellg());
}

std::string bytes_at(std::ifstream& file, int64_t offset, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  file.seekg(offset);
  file.read(bytes.data(), count);
  return file ? bytes : std::string();
}

void require_kind(const std::filesystem::path& path, std::ifstream& file) {
  const auto size = std::min(file_size(file), static_cast<int64_t>(kMagic.size()));
  if (kMagic.rfind(bytes_at(file, 0, size), 0) != 0) {
    throw Error(fmt::format(
        "{}: is no file of a model's layers, and is not overwritten. Name another file.",
        path.string()));
  }
}

/// The text of the table at the end; "" where the file was cut off or the table is damaged.
std::string table_text(const std::filesystem::path& path, std::ifstream& file) {
  constexpr auto kPlace = static_cast<int64_t>(sizeof(int64_t));
  const int64_t end = file_size(file) - kPlace;
  const std::string place = end < 0 ? std::string() : bytes_at(file, end, kPlace);
  int64_t begin = -1;
  if (!place.empty()) {
    std::memcpy(&begin, place.data(), place.size());
  }
  if (begin < 0 || begin > end || end - begin > kLargestTable) {
    return {};
  }
  const std::string blob = bytes_at(file, begin, end - begin);
  try {
    return std::string(
        parse_blob(kTable, std::as_bytes(std::span(blob.data(), blob.size())), path.string())
            .header);
  } catch (const SnapshotVersionError&) {
    return {};
  } catch (const SnapshotDamagedError&) {
    return {};
  }
}

std::string key_text(const std::string& model) {
  const uint64_t hash = hash_bytes(kHashStart, model.data(), model.size());
  return fmt::format("{:016x} {}", hash, kPacking);
}

}  // namespace

LayerFileWriter::LayerFileWriter(const std::filesystem::path& path, LayerFileKey key)
    : key_(std::move(key)), file_(path) {
  if (std::ifstream present(path, std::ios::binary); present) {
    require_kind(path, present);
  }
  put(std::as_bytes(std::span(kMagic)));
  pad(kLayerAlignment);
}

void LayerFileWriter::put(std::span<const std::byte> bytes) {
  file_.write(bytes);
  written_ += std::ssize(bytes);
  checksum_ = hash_bytes(checksum_, bytes.data(), bytes.size());
}

void LayerFileWriter::pad(int64_t alignment) {
  constexpr std::array<std::byte, kLayerAlignment> kZeros = {};
  const int64_t zeros = (alignment - written_ % alignment) % alignment;
  put(std::span(kZeros).first(static_cast<size_t>(zeros)));
}

void LayerFileWriter::add(const LayerWeights& layer) {
  const int64_t begin = written_;
  checksum_ = kHashStart;
  visit_matrices(layer, [this](const Linear& matrix) {
    for (const Linear::Part& part : matrix.parts()) {
      put({static_cast<const std::byte*>(part.packed.const_data_ptr()), part.packed.nbytes()});
      pad(kPartAlignment);
    }
  });
  pad(kLayerAlignment);
  SPECDEC_CHECK(written_ - begin == key_.layer_bytes.at(checksums_.size()),
                "layer {} takes {} bytes in its file, not {}", checksums_.size(), written_ - begin,
                key_.layer_bytes.at(checksums_.size()));
  checksums_.push_back(checksum_);
}

void LayerFileWriter::finish(const LayerFileNames& names) {
  SPECDEC_CHECK(checksums_.size() == key_.layer_bytes.size(), "{} layers of {} were written",
                checksums_.size(), key_.layer_bytes.size());
  const json table = {{"key", key_text(key_.model)},
                      {"fingerprint", names.fingerprint},
                      {"weights_fingerprint", names.weights_fingerprint},
                      {"layer_bytes", key_.layer_bytes},
                      {"checksums", checksums_}};
  const int64_t begin = written_;
  write_blob(kTable, table.dump(), {},
             [this](std::span<const std::byte> bytes) { file_.write(bytes); });
  file_.write(std::as_bytes(std::span(&begin, 1)));
  file_.commit();
}

std::unique_ptr<LayerFile> LayerFile::open(const std::filesystem::path& path,
                                           const LayerFileKey& key) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    return nullptr;
  }
  if (!std::filesystem::is_regular_file(path, code)) {
    throw Error(fmt::format("{}: is no file. Name a file for the model's layers.", path.string()));
  }
  std::ifstream file(path, std::ios::binary);
  const int descriptor = file ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) {
    throw Error(fmt::format("{}: cannot be read: {}. Check who may read it, or name another file.",
                            path.string(), std::strerror(errno)));
  }
  std::unique_ptr<LayerFile> layers(new LayerFile(path, descriptor));
  require_kind(path, file);
  const std::string table = table_text(path, file);
  return !table.empty() && layers->read_table(table, key) ? std::move(layers) : nullptr;
}

LayerFile::LayerFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)),
      file_(path_, descriptor, "Check the disk, or delete the file: it will be written again.") {}

bool LayerFile::read_table(const std::string& text, const LayerFileKey& key) {
  const json table = json::parse(text);  // its checksum was right
  const auto bytes = table.at("layer_bytes").get<std::vector<int64_t>>();
  if (table.at("key") != key_text(key.model) || bytes != key.layer_bytes) {
    return false;
  }
  names_ = {.fingerprint = table.at("fingerprint"),
            .weights_fingerprint = table.at("weights_fingerprint")};
  int64_t offset = kLayerAlignment;
  for (size_t i = 0; i < bytes.size(); ++i) {
    layers_.push_back(
        {.offset = offset, .bytes = bytes[i], .checksum = table.at("checksums").at(i)});
    offset += bytes[i];
  }
  return true;
}

int64_t LayerFile::bytes(int64_t layer) const {
  return layers_.at(static_cast<size_t>(layer)).bytes;
}

void LayerFile::read(int64_t layer, std::span<std::byte> memory) {
  Layer& stored = layers_.at(static_cast<size_t>(layer));
  file_.read(stored.offset, memory);
  if (!stored.is_checked) {
    if (hash_bytes(kHashStart, memory.data(), memory.size()) != stored.checksum) {
      throw Error(fmt::format(
          "{}: layer {} is damaged: its checksum is not that of its bytes. Delete the file: it "
          "will be written again.",
          path_.string(), layer));
    }
    stored.is_checked = true;
  }
}

}  // namespace specdec
