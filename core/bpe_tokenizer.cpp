#include "core/bpe_tokenizer.h"

#include <fmt/format.h>

#include <queue>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/formats/tokenizer_json_reader.h"
#include "core/formats/utf8.h"
#include "core/piece_matcher.h"
#include "core/vocabulary.h"

namespace specdec {
namespace {

struct Merge {
  uint32_t rank = 0;
  Token result = 0;
};
using Merges = std::unordered_map<uint64_t, Merge>;  // left << 32 | right

uint64_t pair_key(Token left, Token right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Joins the pieces of one stretch of text, lowest rank first, the leftmost of equals. Symbols form
// a linked list, candidate merges a heap; stale candidates are skipped when popped, so the time is
// O(n log n).
class Merger {
 public:
  Merger(const Merges& merges, std::vector<Token> symbols) : merges_(merges) {
    const auto count = static_cast<int64_t>(symbols.size());
    symbols_.reserve(symbols.size());
    for (int64_t i = 0; i < count; ++i) {
      symbols_.push_back(
          {.token = symbols[static_cast<size_t>(i)], .previous = i - 1, .next = i + 1});
    }
    for (int64_t i = 0; i + 1 < count; ++i) {
      consider(i);
    }
  }

  void run(std::vector<Token>& out) {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      if (is_current(best)) {
        join(best);
      }
    }
    for (int64_t i = 0; i < size(); i = at(i).next) {  // the first symbol is never joined to a left
      out.push_back(at(i).token);
    }
  }

 private:
  struct Symbol {
    Token token = 0;  // -1 once joined to its left neighbour
    int64_t previous = -1;
    int64_t next = 0;  // size() after the last
  };
  struct Candidate {
    uint32_t rank = 0;
    int64_t position = 0;  // of the left symbol
    Token left = 0, right = 0, result = 0;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the largest first
      return std::pair(rank, position) > std::pair(other.rank, other.position);
    }
  };

  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  Symbol& at(int64_t position) { return symbols_[static_cast<size_t>(position)]; }

  void consider(int64_t position) {
    if (position < 0 || at(position).next >= size()) {
      return;
    }
    const Token left = at(position).token;
    const Token right = at(at(position).next).token;
    const auto found = merges_.find(pair_key(left, right));
    if (found != merges_.end()) {
      candidates_.push({.rank = found->second.rank,
                        .position = position,
                        .left = left,
                        .right = right,
                        .result = found->second.result});
    }
  }

  bool is_current(const Candidate& candidate) {
    const Symbol& symbol = at(candidate.position);
    return symbol.token == candidate.left && symbol.next < size() &&
           at(symbol.next).token == candidate.right;
  }

  void join(const Candidate& candidate) {
    Symbol& symbol = at(candidate.position);
    at(symbol.next).token = -1;
    symbol.token = candidate.result;
    symbol.next = at(symbol.next).next;
    if (symbol.next < size()) {
      at(symbol.next).previous = candidate.position;
    }
    consider(symbol.previous);
    consider(candidate.position);
  }

  const Merges& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeModel model) : vocabulary_(model.vocabulary) {
    for (const AddedToken& token : model.added) {
      (token.normalized ? added_normalized_ : added_raw_).add(token.text, token.id);
      added_.push_back(token.id);
    }
    merges_.reserve(model.merges.size());
    for (size_t rank = 0; rank < model.merges.size(); ++rank) {
      const BpeMerge& merge = model.merges[rank];
      merges_.insert_or_assign(pair_key(merge.left, merge.right),
                               Merge{.rank = static_cast<uint32_t>(rank), .result = merge.result});
    }
  }

  int64_t vocab_size() const override { return vocabulary_.size(); }
  std::string_view token_bytes(Token token) const override { return vocabulary_.bytes(token); }
  std::string_view piece(Token token) const override { return vocabulary_.piece(token); }
  std::optional<Token> find_piece(std::string_view piece) const override {
    return vocabulary_.find(piece);
  }
  std::optional<Token> bos() const override { return vocabulary_.bos(); }
  std::optional<Token> eos() const override { return vocabulary_.eos(); }

  std::vector<Token> encode(std::string_view text) const override {
    if (text.size() > kMaxTextBytes) {
      throw Error(fmt::format("a text of {} bytes is too long to encode at once; the limit is {}.",
                              text.size(), kMaxTextBytes));
    }
    std::vector<Token> tokens;
    for (const Utf8Run& run : utf8_runs(text)) {
      if (run.valid) {
        encode_run(run.text, tokens);
      } else {
        append_bytes(run.text, tokens);
      }
    }
    return tokens;
  }

  // Gemma's added tokens of the two kinds (spaces; names in angle brackets) have no text that
  // overlaps, so that it does not matter which are found first.
  std::optional<MergeRules> merge_rules() const override {
    MergeRules rules;
    rules.whole = added_;
    rules.merges.reserve(merges_.size());
    for (const auto& [pair, merge] : merges_) {
      rules.merges.push_back({.left = static_cast<Token>(pair >> 32),
                              .right = static_cast<Token>(pair & 0xFFFFFFFF),
                              .result = merge.result,
                              .rank = merge.rank});
    }
    return rules;
  }

 private:
  // Added tokens of the raw text, then those of the normalised text, then BPE between them.
  void encode_run(std::string_view text, std::vector<Token>& tokens) const {
    split(text, added_raw_, tokens, [&](std::string_view raw) {
      const std::string normalized = replace_all(raw, " ", kSpaceMark);
      split(normalized, added_normalized_, tokens,
            [&](std::string_view plain) { Merger(merges_, symbols(plain)).run(tokens); });
    });
  }

  // Appends the ids of the matcher's pieces and calls `between` with the text between them.
  template <class Between>
  static void split(std::string_view text, const PieceMatcher& matcher, std::vector<Token>& tokens,
                    const Between& between) {
    size_t begin = 0;
    size_t at = 0;
    while (at < text.size()) {
      const PieceMatcher::Match match = matcher.longest(text.substr(at));
      if (match.bytes == 0) {
        ++at;
        continue;
      }
      if (at > begin) {
        between(text.substr(begin, at - begin));
      }
      tokens.push_back(match.id);
      at += match.bytes;
      begin = at;
    }
    if (at > begin) {
      between(text.substr(begin));
    }
  }

  // One piece for each character, or its bytes when it has none.
  std::vector<Token> symbols(std::string_view text) const {
    std::vector<Token> result;
    result.reserve(text.size());
    while (!text.empty()) {
      const std::string_view character = text.substr(0, scan_utf8(text).bytes);
      if (const auto token = vocabulary_.find(character)) {
        result.push_back(*token);
      } else {
        append_bytes(character, result);
      }
      text.remove_prefix(character.size());
    }
    return result;
  }

  void append_bytes(std::string_view bytes, std::vector<Token>& tokens) const {
    for (const char byte : bytes) {
      tokens.push_back(vocabulary_.byte_token(static_cast<unsigned char>(byte)));
    }
  }

  Vocabulary vocabulary_;
  Merges merges_;
  std::vector<Token> added_;
  PieceMatcher added_raw_;
  PieceMatcher added_normalized_;
};

}  // namespace

std::unique_ptr<Tokenizer> bpe_tokenizer(std::string_view json, const std::string& where) {
  return std::make_unique<BpeTokenizer>(parse_tokenizer_json(json, where));
}

}  // namespace specdec
