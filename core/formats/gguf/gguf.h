#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/formats/mapped_file.h"
#include "core/formats/safetensors.h"

namespace specdec {

/// A value of a GGUF file's metadata; lists of booleans are lists of 0 and 1.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<float>, std::vector<std::string>>;

/// The metadata of a GGUF file; every complaint is a WeightsError that names the file and the key.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string where = "") : where_(std::move(where)) {}
  void add(std::string key, GgufValue value);

  bool has(const std::string& key) const { return values_.count(key) != 0; }
  const std::map<std::string, GgufValue>& values() const { return values_; }
  /// A missing key without a fallback is an error, and so are a value of another type and a number
  /// that is not finite.
  int64_t integer(const std::string& key, std::optional<int64_t> fallback = std::nullopt) const;
  double number(const std::string& key, std::optional<double> fallback = std::nullopt) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key,
                   const std::optional<std::string>& fallback = std::nullopt) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  const std::vector<int64_t>& integers(const std::string& key) const;
  const std::vector<float>& numbers(const std::string& key) const;

  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const std::string& key, const std::string& problem) const;

 private:
  template <class T>
  const T& get(const std::string& key, const char* type) const;

  std::string where_;
  std::map<std::string, GgufValue> values_;
};

/// What one GGUF file holds; the tensors' bytes lie in it. Shapes are row-major, [out, in].
struct GgufContent {
  GgufMetadata metadata;
  std::vector<TensorEntry> tensors;

  const TensorEntry* find(std::string_view name) const;
};

/// Reads GGUF v2 or v3. Throws WeightsError naming `where` and the key or tensor: not GGUF,
/// another version, truncated, counts, lengths or offsets beyond the file, tensors that overlap,
/// unknown types, names that come twice.
GgufContent parse_gguf(std::span<const std::byte> file, const std::string& where);

/// True for a file that begins as GGUF files do.
bool is_gguf(const std::filesystem::path& path);

/// Throws WeightsError where `path` is a file, but no GGUF file, or one that cannot be opened.
void refuse_other_file(const std::filesystem::path& path);

/// The first one, by name, of a folder's GGUF files; empty without one.
std::filesystem::path first_gguf(const std::filesystem::path& folder);

/// The name of the first file of the split model that has one of this name
/// ("m-00002-of-00003.gguf" -> "m-00001-of-00003.gguf"); any other name as it is.
std::string first_of_split(const std::string& name);

/// A model in GGUF, memory-mapped, or in memory. The tensors live as long as it does.
class GgufFile {
 public:
  /// A file, or any of the files of a split model ("name-00002-of-00003.gguf"), whose others lie
  /// beside it.
  explicit GgufFile(const std::filesystem::path& path);
  /// A whole model in memory, under the name `where` in messages.
  GgufFile(std::vector<std::byte> bytes, const std::string& where);
  /// Reads a file from bytes that are not copied: they outlive it and the weights loaded from it.
  GgufFile(std::span<const std::byte> bytes, const std::string& where);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const GgufContent& content() const { return content_; }
  const GgufMetadata& metadata() const { return content_.metadata; }
  const std::vector<TensorEntry>& tensors() const { return content_.tensors; }
  const TensorEntry* find(std::string_view name) const { return content_.find(name); }
  /// Gives pages of a mapped file back to the system.
  void release(std::span<const std::byte> part) const;

 private:
  void add(GgufContent content);
  void add_whole(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<std::byte> memory_;
  GgufContent content_;
};

}  // namespace specdec
