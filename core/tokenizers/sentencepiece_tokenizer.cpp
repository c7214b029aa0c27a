#include "core/tokenizers/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/added_parts.h"
#include "core/tokenizers/vocabulary_tokenizer.h"

namespace specdec {
namespace {

class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  SentencePieceTokenizer(const SentencePieceModel& model, const std::vector<SideToken>& added,
                         std::string_view bytes, const std::string& where,
                         const TokenizerConfig& config)
      : VocabularyTokenizer(model, config),
        prefix_space_(model.prefix_space == PrefixSpace::kAlways) {
    // A later value of a field counts: normalizer_spec.add_dummy_prefix = false, since the library
    // would put the prefix before every text, also one that goes on from other text.
    constexpr std::string_view kNoPrefix{"\x1A\x02\x18\x00", 4};
    const auto status = processor_.LoadFromSerializedProto(std::string(bytes).append(kNoPrefix));
    if (!status.ok()) {
      throw WeightsError(fmt::format("{}: SentencePiece refuses it: {}", where, status.ToString()));
    }
    for (const SideToken& token : added) {
      const auto id = static_cast<Token>(token.id);
      if (token.matched) {
        added_.add(token.text, id);
      }
      if (token.flags.any()) {
        flags_.emplace(id, token.flags);
      }
      matches_ = matches_ || token.matched;
      changes_ = changes_ || token.matched || token.changed;
    }
  }

  AddedFlags added_flags(Token token) const override {
    const auto found = flags_.find(token);
    return found == flags_.end() ? AddedFlags() : found->second;
  }

  std::vector<Token> encode_after(TextStart start, std::string_view text) const override {
    if (!matches_) {
      return encode_plain(start, text);
    }
    std::vector<AddedPart> parts = parts_of(text, added_);
    apply_added_flags(
        parts, [this](Token id) { return added_flags(id); },
        [this](Token id) { return piece(id); });
    std::vector<Token> tokens;
    for (const AddedPart& part : parts) {
      if (part.id) {
        tokens.push_back(*part.id);
      } else {
        const auto plain = encode_plain(part.first ? start : TextStart::kAfterControl, part.text);
        tokens.insert(tokens.end(), plain.begin(), plain.end());
      }
    }
    return tokens;
  }

  std::optional<MergeRules> merge_rules() const override {
    if (changes_) {
      return std::nullopt;
    }
    MergeRules rules;
    const std::vector<uint32_t> ranks = score_ranks();
    for (Token token = 0; token < processor_.GetPieceSize(); ++token) {
      if (vocabulary().type(token) == PieceType::kUserDefined) {
        rules.whole.push_back(token);
      } else if (vocabulary().type(token) == PieceType::kNormal) {
        add_merges(token, ranks[static_cast<size_t>(token)], rules.merges);
      }
    }
    return rules;
  }

 private:
  std::vector<Token> encode_plain(TextStart start, std::string_view text) const {
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

  // The library joins any two pieces whose text together is a piece, the best score first.
  std::vector<uint32_t> score_ranks() const {
    std::vector<float> scores;
    for (Token token = 0; token < processor_.GetPieceSize(); ++token) {
      scores.push_back(processor_.GetScore(token));
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    std::vector<uint32_t> ranks;
    for (Token token = 0; token < processor_.GetPieceSize(); ++token) {
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
  PieceMatcher added_;
  std::unordered_map<Token, AddedFlags> flags_;
  bool matches_ = false;  // added_ has pieces
  bool changes_ = false;  // texts are not cut as tokenizer.model alone says
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                                   const TokenizerConfig& config) {
  return std::make_unique<SentencePieceTokenizer>(parse_sentencepiece_model(bytes, where, config),
                                                  std::vector<SideToken>(), bytes, where, config);
}

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const std::filesystem::path& file,
                                                   uint64_t vocab_size,
                                                   const TokenizerConfig& config) {
  const std::string bytes = read_file(file);
  SentencePieceModel model = parse_sentencepiece_model(bytes, file.string(), config);
  const auto added = add_side_tokens(file.parent_path(), vocab_size, model);
  return std::make_unique<SentencePieceTokenizer>(model, added, bytes, file.string(), config);
}

}  // namespace specdec
