#include "grammar/forced_tokens.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

// Tokens of the output that the tokenizer sees before forced bytes: it merges no further back.
constexpr size_t kContextTokens = 8;
// Masks with more tokens than this are not searched for one that goes on where a forced one ends.
constexpr int64_t kMaxSearched = 4096;

/// Bytes without those of an unfinished UTF-8 character at the end.
std::string_view whole_characters(std::string_view bytes) {
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Scan scan = scan_utf8(rest);
    if (scan.prefix) {
      return bytes.substr(0, bytes.size() - rest.size());
    }
    rest.remove_prefix(scan.bytes);
  }
  return bytes;
}

/// The bytes as the tokenizer cuts them after the newest tokens of the output.
std::vector<Token> cut(const Tokenizer& tokenizer, TokenSpan output, std::string_view bytes) {
  const TokenSpan before = output.last(std::min(output.size(), kContextTokens));
  std::vector<Token> tokens =
      tokenizer.encode_after(TextStart::kContinued, tokenizer.decode(before).append(bytes));
  if (tokens.size() >= before.size() && std::equal(before.begin(), before.end(), tokens.begin())) {
    tokens.erase(tokens.begin(), tokens.begin() + std::ssize(before));
    return tokens;
  }
  return tokenizer.encode_after(TextStart::kContinued,
                                bytes);  // the text before is cut in a way of its own
}

/// Whether the mask has a token that begins with these bytes and is longer.
bool allows_longer(const TokenMask& mask, const GrammarVocabulary& vocabulary,
                   std::string_view bytes) {
  if (mask.count() > kMaxSearched) {
    return true;
  }
  const std::vector<Token> tokens = mask.tokens();
  return std::any_of(tokens.begin(), tokens.end(), [&](Token token) {
    const std::string_view other = vocabulary.bytes(token);
    return other.size() > bytes.size() && other.starts_with(bytes);
  });
}

}  // namespace

std::vector<Token> forced_tokens(GrammarMatcher place, int64_t most) {
  std::vector<Token> tokens;
  while (std::ssize(tokens) < most) {
    const Token token = place.mask().single();
    if (token < 0 || place.grammar().is_end(token) || !place.accept(token)) {
      break;
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::vector<Token> forced_text_tokens(const GrammarMatcher& place, const Tokenizer* tokenizer,
                                      TokenSpan output, int64_t most) {
  std::vector<Token> tokens = forced_tokens(place, most);
  GrammarMatcher after = place;
  std::vector<Token> before(output.begin(), output.end());
  for (const Token token : tokens) {
    (void)after.accept(token);
    before.push_back(token);
  }
  const std::string bytes = after.forced_bytes();
  std::string_view left = whole_characters(bytes);
  if (tokenizer == nullptr || left.empty() || std::ssize(tokens) >= most) {
    return tokens;
  }
  for (const Token token : cut(*tokenizer, before, left)) {
    const std::string_view piece = tokenizer->token_bytes(token);
    const bool last = piece.size() >= left.size();
    if (std::ssize(tokens) >= most || !left.starts_with(piece) ||
        (last && allows_longer(after.mask(), after.grammar().vocabulary(), piece)) ||
        !after.accept(token)) {
      break;
    }
    tokens.push_back(token);
    left.remove_prefix(piece.size());
  }
  return tokens;
}

}  // namespace specdec
