#include "core/tokenizers/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_config.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/sentencepiece_tokenizer.h"
#include "core/tokenizers/tokenizer_files.h"
#include "core/tokenizers/tokenizer_text.h"

namespace specdec {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

/// `path`, or the file of the folder that it is.
std::filesystem::path file_of(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    throw WeightsError(fmt::format("{}: no such file or folder.", path.string()));
  }
  if (!std::filesystem::is_directory(path, code)) {
    return path;
  }
  if (auto file = tokenizer_file(path); !file.empty()) {
    return file;
  }
  const auto gguf = first_gguf(path);
  if (!gguf.empty()) {
    throw WeightsError(fmt::format("{}: it holds no tokenizer, but a GGUF file. Name the file: {}",
                                   path.string(), gguf.string()));
  }
  throw WeightsError(
      fmt::format("{}: it holds neither tokenizer.model nor tokenizer.json. Copy one "
                  "of them from where the checkpoint comes from.",
                  path.string()));
}

}  // namespace

std::string Tokenizer::decode(TokenSpan tokens) const {
  std::string text;
  for (const Token token : tokens) {
    text += token_bytes(token);
  }
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          std::vector<std::string>* notes) {
  const std::filesystem::path file = file_of(path);
  if (is_gguf(file)) {
    return gguf_tokenizer(GgufFile(file).metadata());
  }
  if (file.extension() == ".gguf") {
    refuse_other_file(file);
  }
  const std::string bytes = read_file(file);
  const size_t first = bytes.find_first_not_of(kWhiteSpace);
  const bool is_json =
      file.extension() == ".json" || (first != std::string::npos && bytes[first] == '{');
  const TokenizerConfig config = read_tokenizer_config(file.parent_path());
  if (is_json) {
    return make_tokenizer({.json = bytes,
                           .config = config,
                           .vocab_size = vocabulary_size(file.parent_path()),
                           .where = file.string(),
                           .model = file.parent_path().string()},
                          notes);
  }
  return sentencepiece_tokenizer(file, vocabulary_size(file.parent_path()), config);
}

int64_t used_pieces(const Tokenizer& tokenizer) {
  int64_t count = tokenizer.vocab_size();
  while (count > 0 && tokenizer.piece(static_cast<Token>(count - 1)).empty()) {
    --count;
  }
  return count;
}

bool same_vocabulary(const Tokenizer& a, const Tokenizer& b, std::string& reason) {
  const int64_t pieces = used_pieces(a);
  if (pieces != used_pieces(b)) {
    reason = fmt::format("one has {} pieces, the other {}", pieces, used_pieces(b));
    return false;
  }
  for (Token token = 0; token < pieces; ++token) {
    if (a.piece(token) != b.piece(token) || a.token_bytes(token) != b.token_bytes(token)) {
      reason = fmt::format("token {} is \"{}\" in one and \"{}\" in the other", token,
                           a.piece(token), b.piece(token));
      return false;
    }
  }
  return true;
}

std::string StreamingDecoder::push(Token token) {
  waiting_ += tokenizer_.token_bytes(token);
  std::string ready;
  std::string_view rest = waiting_;
  while (!rest.empty()) {
    const Utf8Scan scan = scan_utf8(rest);
    if (scan.prefix) {
      break;
    }
    ready += scan.valid ? rest.substr(0, scan.bytes) : kReplacement;
    rest.remove_prefix(scan.bytes);
  }
  waiting_.erase(0, waiting_.size() - rest.size());
  return ready;
}

std::string StreamingDecoder::finish() {
  const bool unfinished = !waiting_.empty();
  waiting_.clear();
  return std::string(unfinished ? kReplacement : "");
}

}  // namespace specdec
