#include "core/formats/file_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/safetensors_header.h"

namespace specdec {
namespace {

/// How files begin that people take for models.
struct KnownContent {
  std::string_view begin;
  const char* kind;
};
constexpr const char* kPointer = "a pointer of Git LFS, not the file itself: run 'git lfs pull'";
constexpr const char* kPage = "a web page: the download went wrong";
constexpr const char* kServerMessage = "a server's message in XML: the download went wrong";
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
constexpr size_t kLongestBegin = 4096;  // with the comments before a page

/// What a file is that begins so; null where it is none of those.
const char* kind_of(std::string_view begin) {
  for (const KnownContent& known : kKnownContents) {
    if (begin.starts_with(known.begin)) {
      return known.kind;
    }
  }
  return nullptr;
}

/// Whether the text begins so, in upper or lower case; `begin` is in lower case.
bool begins_in_any_case(std::string_view text, std::string_view begin) {
  return text.size() >= begin.size() &&
         std::equal(begin.begin(), begin.end(), text.begin(),
                    [](char a, char b) { return a == (is_letter(b) ? b | 0x20 : b); });
}

/// Cuts off what begins with `begin`, up to and with `end`; false where neither is there.
bool skip(std::string_view& text, std::string_view begin, std::string_view end) {
  const size_t found = text.starts_with(begin) ? text.find(end, begin.size()) : std::string::npos;
  if (found == std::string::npos) {
    return false;
  }
  text.remove_prefix(found + end.size());
  return true;
}

/// What a text in HTML or XML is; null for other texts. Byte order mark, white space and comments
/// may come first.
const char* markup_kind(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  bool is_xml = false;
  for (bool more = true; more;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\f"), text.size()));
    const bool declares_xml = skip(text, "<?xml", "?>");
    is_xml = is_xml || declares_xml;
    more = declares_xml || skip(text, "<!--", "-->");
  }
  for (const char* tag : {"<!doctype html", "<html", "<head", "<body", "<title"}) {
    const size_t size = std::string_view(tag).size();
    const char after = size < text.size() ? text[size] : '>';
    if (begins_in_any_case(text, tag) &&
        std::string_view("> \t\r\n\f/").find(after) != std::string_view::npos) {
      return kPage;
    }
  }
  return is_xml && text.starts_with('<') ? kServerMessage : nullptr;
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

bool has_entry(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::symlink_status(path, code).type() !=
         std::filesystem::file_type::not_found;
}

/// What a shell has opened: /dev/stdin, or <(command) as /dev/fd/63 or /proc/self/fd/11.
static bool is_opened_by_shell(const std::filesystem::path& path) {
  const std::string name = path.string();
  return name == "/dev/stdin" || name.starts_with("/dev/fd/") ||
         (name.starts_with("/proc/") && name.find("/fd/") != std::string::npos);
}

std::string irregular_kind(const std::filesystem::path& path) {
  std::error_code code;
  switch (std::filesystem::status(path, code).type()) {
    case std::filesystem::file_type::directory:
      return "a folder";
    case std::filesystem::file_type::fifo:
      return is_opened_by_shell(path) ? "" : "a named pipe";
    case std::filesystem::file_type::character:
      return is_opened_by_shell(path) ? "" : "a device";
    case std::filesystem::file_type::block:
      return "a device";
    case std::filesystem::file_type::socket:
      return "a socket";
    default:
      return "";
  }
}

void refuse_irregular(const std::filesystem::path& path) {
  if (const std::string kind = irregular_kind(path); !kind.empty()) {
    throw WeightsError(fmt::format(
        "{}: is {}, not a file. Write its content to a file, and name that.", path.string(), kind));
  }
}

std::string open_failure(const std::filesystem::path& path, int error) {
  std::error_code code;
  if (error == ENOENT && std::filesystem::is_symlink(path, code)) {
    return fmt::format("it is a link to {}, which is missing. Download the file again",
                       std::filesystem::read_symlink(path, code).string());
  }
  return std::strerror(error);
}

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
  if (const std::string kind = placeholder_kind(begin); !kind.empty()) {
    found = fmt::format("is not a GGUF file, but {}", kind);
  } else if (const char* known = kind_of(begin)) {
    found = fmt::format("is not a GGUF file, but {}", known);
  }
  return fmt::format(
      "{}. Name a GGUF file or a Hugging Face checkpoint folder; if it should be a GGUF file, "
      "download it again.",
      found);
}

std::string placeholder_kind(std::string_view bytes) {
  bytes = bytes.substr(0, kLongestBegin);
  if (bytes.starts_with("version https://git-lfs")) {
    return kPointer;
  }
  const char* kind = markup_kind(bytes);
  return kind == nullptr ? "" : kind;
}

void refuse_placeholder(std::string_view bytes, const std::string& where) {
  if (const std::string kind = placeholder_kind(bytes); !kind.empty()) {
    throw WeightsError(fmt::format("{}: it is {}. Copy or download it again.", where, kind));
  }
}

void refuse_placeholder(std::span<const std::byte> file, const std::string& where) {
  refuse_placeholder(std::string_view(reinterpret_cast<const char*>(file.data()),
                                      std::min(file.size(), kLongestBegin)),
                     where);
}

}  // namespace specdec
