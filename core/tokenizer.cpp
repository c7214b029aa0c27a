#include "core/tokenizer.h"

#include <fmt/format.h>

#include "core/bpe_tokenizer.h"
#include "core/error.h"
#include "core/formats/strict_json.h"
#include "core/formats/utf8.h"
#include "core/sentencepiece_tokenizer.h"

namespace specdec {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

std::filesystem::path tokenizer_file(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    throw WeightsError(fmt::format("{}: no such file or folder.", path.string()));
  }
  if (!std::filesystem::is_directory(path, code)) {
    return path;
  }
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    if (std::filesystem::exists(path / name, code)) {
      return path / name;
    }
  }
  throw WeightsError(
      fmt::format("{}: it holds neither tokenizer.model nor tokenizer.json. Copy one "
                  "of them from where the checkpoint comes from.",
                  path.string()));
}

Token turn_piece(const Tokenizer& tokenizer, std::string_view piece) {
  const auto token = tokenizer.find_piece(piece);
  if (!token) {
    throw Error(
        fmt::format("the tokenizer has no piece {}, so it cannot write chat turns. Give the "
                    "prompt as plain text instead.",
                    piece));
  }
  return *token;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
}

}  // namespace

std::string Tokenizer::decode(TokenSpan tokens) const {
  std::string text;
  for (const Token token : tokens) {
    text += token_bytes(token);
  }
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  const std::filesystem::path file = tokenizer_file(path);
  const std::string bytes = read_file(file);
  const size_t first = bytes.find_first_not_of(kWhiteSpace);
  const bool is_json =
      file.extension() == ".json" || (first != std::string::npos && bytes[first] == '{');
  return is_json ? bpe_tokenizer(bytes, file.string())
                 : sentencepiece_tokenizer(bytes, file.string());
}

bool same_vocabulary(const Tokenizer& a, const Tokenizer& b, std::string& reason) {
  if (a.vocab_size() != b.vocab_size()) {
    reason = fmt::format("one has {} pieces, the other {}", a.vocab_size(), b.vocab_size());
    return false;
  }
  for (Token token = 0; token < a.vocab_size(); ++token) {
    if (a.piece(token) != b.piece(token) || a.token_bytes(token) != b.token_bytes(token)) {
      reason = fmt::format("token {} is \"{}\" in one and \"{}\" in the other", token,
                           a.piece(token), b.piece(token));
      return false;
    }
  }
  return true;
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns) {
  const Token start = turn_piece(tokenizer, "<start_of_turn>");
  const Token end = turn_piece(tokenizer, "<end_of_turn>");
  std::vector<Token> tokens = {turn_piece(tokenizer, "<bos>")};
  const auto append = [&](std::string_view text) {
    const auto encoded = tokenizer.encode(text);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  };
  for (const ChatTurn& turn : turns) {
    if (turn.role != "user" && turn.role != "model") {
      throw Error(fmt::format("unknown role '{}' of a chat turn; known: user, model.", turn.role));
    }
    tokens.push_back(start);
    append(fmt::format("{}\n{}", turn.role, trimmed(turn.text)));
    tokens.push_back(end);
    append("\n");
  }
  tokens.push_back(start);
  append("model\n");
  return tokens;
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
