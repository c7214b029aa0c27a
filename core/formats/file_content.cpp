#include "core/formats/file_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "core/formats/safetensors_header.h"

namespace specdec {
namespace {

/// How files begin that people take for models.
struct KnownContent {
  std::string_view begin;
  const char* kind;
};
constexpr KnownContent kPlaceholders[] = {
    {"version https://git-lfs", "a pointer of Git LFS, not the file itself: run 'git lfs pull'"},
    {"<!DOCTYPE", "a web page: the download went wrong"},
    {"<!doctype", "a web page: the download went wrong"},
    {"<html", "a web page: the download went wrong"}};
constexpr KnownContent kKnownContents[] = {
    {"PK\x03\x04",
     "a zip archive, as PyTorch saves weights: name the folder with it, as pytorch_model.bin, and "
     "the model's config.json"},
    {"\x80\x02", "a Python pickle, as PyTorch saves weights"},
    {"\x1f\x8b", "compressed with gzip: decompress it"},
    {"lmgg", "an old file of llama.cpp (GGML), from before GGUF"},
    {"fmgg", "an old file of llama.cpp (GGMF), from before GGUF"},
    {"tjgg", "an old file of llama.cpp (GGJT), from before GGUF"},
    {"{", "a JSON text"}};
constexpr size_t kLongestBegin = 32;

/// What a file is that begins so; null where it is none of those.
const char* kind_of(std::string_view begin, std::span<const KnownContent> all) {
  for (const KnownContent& known : all) {
    if (begin.substr(0, known.begin.size()) == known.begin) {
      return known.kind;
    }
  }
  return nullptr;
}

/// The length of its header, then the header, a JSON object.
bool begins_as_safetensors(std::string_view begin, uint64_t file_size) {
  if (begin.size() <= kLengthBytes || begin[kLengthBytes] != '{') {
    return false;
  }
  uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof(length));
  return length <= file_size - kLengthBytes;
}

std::string advice_for_safetensors(const std::filesystem::path& file) {
  std::error_code code;
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (std::filesystem::exists(folder / "config.json", code)) {
    return fmt::format("is a safetensors file. Name its folder, which holds config.json: {}",
                       folder.string());
  }
  return "is a safetensors file, which does not say what model its tensors are. Put it, as "
         "model.safetensors, into a folder with the model's config.json, and name the folder.";
}

}  // namespace

std::string advice_for_content(const std::filesystem::path& file) {
  std::error_code code;
  const uint64_t size = std::filesystem::file_size(file, code);
  std::array<char, kLongestBegin> bytes{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(bytes.data(), bytes.size());
  const std::string_view begin(bytes.data(), static_cast<size_t>(stream.gcount()));
  if (begins_as_safetensors(begin, size)) {
    return advice_for_safetensors(file);
  }
  std::string found =
      begin.empty() ? "is empty" : "is not a GGUF file (it does not begin with 'GGUF')";
  const char* kind = kind_of(begin, kPlaceholders);
  kind = kind == nullptr ? kind_of(begin, kKnownContents) : kind;
  if (kind != nullptr) {
    found = fmt::format("is not a GGUF file, but {}", kind);
  }
  return fmt::format(
      "{}. Name a GGUF file or a Hugging Face checkpoint folder; if it should be a GGUF file, "
      "download it again.",
      found);
}

void refuse_placeholder(std::span<const std::byte> file, const std::string& where) {
  const std::string_view begin(reinterpret_cast<const char*>(file.data()),
                               std::min(file.size(), kLongestBegin));
  if (const char* kind = kind_of(begin, kPlaceholders)) {
    throw WeightsError(fmt::format("{}: it is {}. Copy or download it again.", where, kind));
  }
}

}  // namespace specdec
