#include "core/tokenizers/bpe_tokenizer.h"

#include <unordered_set>

#include "core/formats/tokenizer_json_reader.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/bpe_merges.h"
#include "core/tokenizers/piece_matcher.h"
#include "core/tokenizers/vocabulary_tokenizer.h"

namespace specdec {
namespace {

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  BpeTokenizer(const BpeModel& model, const TokenizerConfig& config)
      : VocabularyTokenizer(model.vocabulary, config),
        merges_(model.merges),
        prefix_space_(model.vocabulary.prefix_space) {
    behind_space_.insert(model.behind_space.begin(), model.behind_space.end());
    for (const AddedToken& token : model.added) {
      (token.normalized ? added_normalized_ : added_raw_).add(token.text, token.id);
      added_.push_back(token.id);
      normalizes_added_ =
          normalizes_added_ || (token.normalized && prefix_space_ == PrefixSpace::kAlways);
    }
  }

  AddedFlags added_flags(Token token) const override {
    return {.behind_space = behind_space_.contains(token)};
  }

  std::vector<Token> encode_after(TextStart start, std::string_view text) const override {
    check_length(text);
    std::vector<Token> tokens;
    for (const Utf8Run& run : utf8_runs(text)) {
      if (run.valid) {
        encode_run(run.text, start, tokens);
      } else {
        merges_.join(symbols(prefix_of(run.text, start)), tokens);
        append_bytes(run.text, tokens);
      }
      start = TextStart::kContinued;
    }
    return tokens;
  }

  // Gemma's added tokens of the two kinds (spaces; names in angle brackets) have no text that
  // overlaps, so that it does not matter which are found first.
  std::optional<MergeRules> merge_rules() const override {
    if (normalizes_added_) {
      return std::nullopt;
    }
    MergeRules rules;
    rules.whole = added_;
    rules.merges = merges_.rules();
    return rules;
  }

 private:
  // Added tokens of the raw text, then those of the normalised text, then BPE between them. The
  // prefix of `kAlways` belongs to normalising, the others' to what comes after it.
  void encode_run(std::string_view text, TextStart start, std::vector<Token>& tokens) const {
    const bool normalizes = prefix_space_ == PrefixSpace::kAlways;
    split_pieces(text, added_raw_, tokens, [&](std::string_view raw) {
      const TextStart before = start_of(raw, text, start);
      std::string normalized = replace_all(raw, " ", kSpaceMark);
      if (normalizes) {
        normalized.insert(0, prefix_of(normalized, before));
      }
      split_pieces(normalized, added_normalized_, tokens, [&](std::string_view plain) {
        std::string section(plain);
        if (!normalizes) {
          section.insert(0, prefix_of(plain, start_of(plain, normalized, before)));
        }
        merges_.join(symbols(section), tokens);
      });
    });
  }

  // What stands before a part of a text between added tokens.
  static TextStart start_of(std::string_view part, std::string_view text, TextStart start) {
    return part.data() == text.data() ? start : TextStart::kAfterControl;
  }

  std::string_view prefix_of(std::string_view text, TextStart start) const {
    const bool first = start == TextStart::kInput;
    const bool wanted = prefix_space_ == PrefixSpace::kAlways ||
                        (!text.starts_with(kSpaceMark) &&
                         (prefix_space_ == PrefixSpace::kUnlessSpace ||
                          (prefix_space_ == PrefixSpace::kFirstUnlessSpace && first)));
    return wanted && start != TextStart::kContinued ? kSpaceMark : std::string_view();
  }

  // One piece for each character, or its bytes when it has none.
  std::vector<Token> symbols(std::string_view text) const {
    std::vector<Token> result;
    result.reserve(text.size());
    while (!text.empty()) {
      const std::string_view character = text.substr(0, scan_utf8(text).bytes);
      if (const auto token = vocabulary().find(character)) {
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
      tokens.push_back(vocabulary().byte_token(static_cast<unsigned char>(byte)));
    }
  }

  BpeMerges merges_;
  std::vector<Token> added_;
  std::unordered_set<Token> behind_space_;
  PieceMatcher added_raw_;
  PieceMatcher added_normalized_;
  PrefixSpace prefix_space_;
  bool normalizes_added_ = false;  // added tokens hold the space before a text
};

}  // namespace

std::unique_ptr<Tokenizer> bpe_tokenizer(std::string_view json, const std::string& where,
                                         const TokenizerConfig& config) {
  return bpe_tokenizer(parse_tokenizer_json(split_tokenizer_json(json, where), where, config),
                       config);
}

std::unique_ptr<Tokenizer> bpe_tokenizer(const BpeModel& model, const TokenizerConfig& config) {
  return std::make_unique<BpeTokenizer>(model, config);
}

}  // namespace specdec
