#include "core/tokenizers/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/vocabulary_tokenizer.h"

namespace specdec {
namespace {

class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, const std::string& where,
                         const TokenizerConfig& config)
      : SentencePieceTokenizer(parse_sentencepiece_model(bytes, where, config), bytes, where,
                               config) {}

  std::vector<Token> encode_after(TextStart start, std::string_view text) const override {
    std::string prefixed;
    if (prefix_space_ && start != TextStart::kContinued && !text.empty()) {
      prefixed.append(" ").append(text);
      text = prefixed;
    }
    std::vector<Token> tokens;
    for (const Utf8Run& run : utf8_runs(text)) {
      if (run.valid) {
        encode_run(run.text, tokens);
      } else {  // the library would replace these bytes by U+FFFD
        for (const char byte : run.text) {
          tokens.push_back(vocabulary().byte_token(static_cast<unsigned char>(byte)));
        }
      }
    }
    return tokens;
  }

  std::optional<MergeRules> merge_rules() const override {
    MergeRules rules;
    const std::vector<uint32_t> ranks = score_ranks();
    for (Token token = 0; token < vocab_size(); ++token) {
      if (vocabulary().type(token) == PieceType::kUserDefined) {
        rules.whole.push_back(token);
      } else if (vocabulary().type(token) == PieceType::kNormal) {
        add_merges(token, ranks[static_cast<size_t>(token)], rules.merges);
      }
    }
    return rules;
  }

 private:
  SentencePieceTokenizer(const SentencePieceModel& model, std::string_view bytes,
                         const std::string& where, const TokenizerConfig& config)
      : VocabularyTokenizer(model, config),
        prefix_space_(model.prefix_space == PrefixSpace::kAlways) {
    // A later value of a field counts: normalizer_spec.add_dummy_prefix = false, since the library
    // would put the prefix before every text, also one that goes on from other text.
    constexpr std::string_view kNoPrefix{"\x1A\x02\x18\x00", 4};
    const auto status = processor_.LoadFromSerializedProto(std::string(bytes).append(kNoPrefix));
    if (!status.ok()) {
      throw WeightsError(fmt::format("{}: SentencePiece refuses it: {}", where, status.ToString()));
    }
  }

  // The library joins any two pieces whose text together is a piece, the best score first.
  std::vector<uint32_t> score_ranks() const {
    std::vector<float> scores;
    for (Token token = 0; token < vocab_size(); ++token) {
      scores.push_back(processor_.GetScore(token));
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    std::vector<uint32_t> ranks;
    for (Token token = 0; token < vocab_size(); ++token) {
      const auto place = std::lower_bound(scores.begin(), scores.end(), processor_.GetScore(token),
                                          std::greater<>());
      ranks.push_back(static_cast<uint32_t>(place - scores.begin()));
    }
    return ranks;
  }

  void add_merges(Token result, uint32_t rank, std::vector<MergeRules::Merge>& merges) const {
    const std::string_view text = piece(result);
    for (size_t at = scan_utf8(text).bytes; at < text.size();
         at += scan_utf8(text.substr(at)).bytes) {
      const auto left = find_piece(text.substr(0, at));
      const auto right = left ? find_piece(text.substr(at)) : std::nullopt;
      if (right && vocabulary().type(*left) == PieceType::kNormal &&
          vocabulary().type(*right) == PieceType::kNormal) {
        merges.push_back({.left = *left, .right = *right, .result = result, .rank = rank});
      }
    }
  }

  void encode_run(std::string_view text, std::vector<Token>& tokens) const {
    check_length(text);
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) {
      throw Error("SentencePiece cannot encode a text: " + status.ToString());
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  bool prefix_space_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                                   const TokenizerConfig& config) {
  return std::make_unique<SentencePieceTokenizer>(bytes, where, config);
}

}  // namespace specdec
