#include "core/formats/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/file_content.h"

namespace specdec {
namespace {

constexpr int64_t kMaxSplits = 9999;

/// "name-00002-of-00003.gguf" -> "name-", "-of-00003.gguf"; nothing for other names.
std::optional<std::pair<std::string, std::string>> split_name(const std::string& name) {
  constexpr std::string_view kEnd = "-00000-of-00000.gguf";  // 0: any digit
  constexpr size_t kNumberEnds = 6;
  if (name.size() < kEnd.size()) {
    return std::nullopt;
  }
  const size_t begin = name.size() - kEnd.size();
  const auto fits = [](char wanted, char found) {
    return wanted == '0' ? is_digit(found) : found == wanted;
  };
  if (!std::equal(kEnd.begin(), kEnd.end(), name.begin() + static_cast<std::ptrdiff_t>(begin),
                  fits)) {
    return std::nullopt;
  }
  return std::pair{name.substr(0, begin + 1), name.substr(begin + kNumberEnds)};
}

constexpr const char* kSplitTensors = "split.tensors.count";

/// Throws WeightsError where a file is not number `number`, from 0, of `count`.
void check_split(const GgufMetadata& metadata, int64_t count, int64_t number) {
  for (const auto& [key, wanted] : {std::pair{"split.count", count}, {"split.no", number}}) {
    const int64_t found = metadata.integer(key, wanted);
    if (found != wanted) {
      metadata.fail(key, fmt::format("is {}, but should be {} in a file of this name: it was "
                                     "renamed, or belongs to another model. Download it again",
                                     found, wanted));
    }
  }
}

/// All files of the model that `path` belongs to, the first one first.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& path, int64_t count) {
  const auto parts = split_name(path.filename().string());
  if (!parts) {
    throw WeightsError(
        fmt::format("{}: it is one of {} files of a model, but is not named like one; give it the "
                    "name it was published under (name-00001-of-{:05}.gguf), beside the others.",
                    path.string(), count, count));
  }
  std::vector<std::filesystem::path> files;
  for (int64_t i = 1; i <= count; ++i) {
    files.push_back(path.parent_path() / fmt::format("{}{:05}{}", parts->first, i, parts->second));
  }
  return files;
}

}  // namespace

void GgufMetadata::add(std::string key, GgufValue value) {
  values_.insert_or_assign(std::move(key), std::move(value));
}

template <class T>
const T& GgufMetadata::get(const std::string& key, const char* type) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    fail(key, "is missing from the metadata");
  }
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) {
    fail(key, fmt::format("should be {}", type));
  }
  return *value;
}

int64_t GgufMetadata::integer(const std::string& key, std::optional<int64_t> fallback) const {
  return fallback && !has(key) ? *fallback : get<int64_t>(key, "an integer");
}

double GgufMetadata::number(const std::string& key, std::optional<double> fallback) const {
  if (fallback && !has(key)) {
    return *fallback;
  }
  const auto found = values_.find(key);
  const bool whole = found != values_.end() && std::holds_alternative<int64_t>(found->second);
  const double value =
      whole ? static_cast<double>(std::get<int64_t>(found->second)) : get<double>(key, "a number");
  if (!std::isfinite(value)) {
    fail(key, fmt::format("is {}, not a finite number", value));
  }
  return value;
}

bool GgufMetadata::boolean(const std::string& key, bool fallback) const {
  return has(key) ? get<bool>(key, "true or false") : fallback;
}

std::string GgufMetadata::text(const std::string& key,
                               const std::optional<std::string>& fallback) const {
  return fallback && !has(key) ? *fallback : get<std::string>(key, "a text");
}

const std::vector<std::string>& GgufMetadata::texts(const std::string& key) const {
  return get<std::vector<std::string>>(key, "a list of texts");
}

const std::vector<int64_t>& GgufMetadata::integers(const std::string& key) const {
  return get<std::vector<int64_t>>(key, "a list of integers");
}

const std::vector<float>& GgufMetadata::numbers(const std::string& key) const {
  const auto& values = get<std::vector<float>>(key, "a list of numbers");
  const auto wrong = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
  if (wrong != values.end()) {
    fail(key, fmt::format("has {} as its entry {}, which is not a finite number", *wrong,
                          wrong - values.begin()));
  }
  return values;
}

void GgufMetadata::fail(const std::string& key, const std::string& problem) const {
  throw WeightsError(fmt::format("{}: '{}' {}.", where_, key, problem));
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) {
    return false;
  }
  std::array<char, 4> magic{};
  std::ifstream file(path, std::ios::binary);
  file.read(magic.data(), magic.size());
  return file && std::string_view(magic.data(), magic.size()) == "GGUF";
}

void refuse_other_file(const std::filesystem::path& path) {
  std::error_code code;
  const bool is_file = std::filesystem::is_regular_file(path, code);
  if (is_gguf(path) || (!is_file && code != std::errc::permission_denied)) {
    return;
  }
  if (!std::ifstream(path, std::ios::binary)) {
    throw WeightsError(fmt::format("{}: cannot open: {}.", path.string(), std::strerror(errno)));
  }
  throw WeightsError(fmt::format("{}: {}", path.string(), advice_for_content(path)));
}

std::string first_of_split(const std::string& name) {
  const auto parts = split_name(name);
  return parts ? fmt::format("{}{:05}{}", parts->first, 1, parts->second) : name;
}

std::filesystem::path first_gguf(const std::filesystem::path& folder) {
  std::filesystem::path first;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const bool earlier = first.empty() || entry.path() < first;
    if (entry.path().extension() == ".gguf" && earlier && is_gguf(entry.path())) {
      first = entry.path();
    }
  }
  return first;
}

GgufFile::GgufFile(const std::filesystem::path& path) : path_(path) {
  files_.emplace_back(path);
  GgufContent first = parse_gguf(files_[0].bytes(), path.string());
  const int64_t count = first.metadata.integer("split.count", 1);
  if (count <= 1) {
    add(std::move(first));
    return;
  }
  if (count > kMaxSplits) {
    first.metadata.fail("split.count", fmt::format("is {}, more than {}", count, kMaxSplits));
  }
  files_.clear();
  for (const auto& file : files_of(path, count)) {
    if (!std::filesystem::exists(file)) {
      throw WeightsError(
          fmt::format("{}: it belongs to a model of {} files, of which {} is missing. Download it "
                      "into the same folder.",
                      path.string(), count, file.filename().string()));
    }
    files_.emplace_back(file);
    GgufContent content = parse_gguf(files_.back().bytes(), file.string());
    check_split(content.metadata, count, std::ssize(files_) - 1);
    add(std::move(content));
  }
  const int64_t found = std::ssize(tensors());
  const int64_t named = metadata().integer(kSplitTensors, found);
  if (named != found) {
    metadata().fail(kSplitTensors,
                    fmt::format("is {}, but the model's {} files hold {} tensors: they are not of "
                                "the same model. Download them again",
                                named, count, found));
  }
}

GgufFile::GgufFile(std::vector<std::byte> bytes, const std::string& where)
    : path_(where), memory_(std::move(bytes)) {
  add_whole(memory_);
}

GgufFile::GgufFile(std::span<const std::byte> bytes, const std::string& where) : path_(where) {
  add_whole(bytes);
}

void GgufFile::add_whole(std::span<const std::byte> bytes) {
  GgufContent content = parse_gguf(bytes, path_.string());
  if (content.metadata.integer("split.count", 1) > 1) {
    content.metadata.fail("split.count",
                          "says that it is a part of a model; a whole one is needed");
  }
  add(std::move(content));
}

void GgufFile::add(GgufContent content) {
  if (metadata().values().empty()) {
    content_.metadata = std::move(content.metadata);
  }
  for (TensorEntry& entry : content.tensors) {
    if (find(entry.name) != nullptr) {
      throw WeightsError(fmt::format("{}: tensor '{}' is in two of the model's files.",
                                     path_.string(), entry.name));
    }
  }
  std::move(content.tensors.begin(), content.tensors.end(), std::back_inserter(content_.tensors));
}

const TensorEntry* GgufContent::find(std::string_view name) const {
  for (const TensorEntry& entry : tensors) {
    if (entry.name == name) {
      return &entry;
    }
  }
  return nullptr;
}

void GgufFile::release(std::span<const std::byte> part) const {
  if (!files_.empty()) {
    release_pages(part);
  }
}

}  // namespace specdec
