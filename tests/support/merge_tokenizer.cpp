#include "tests/support/merge_tokenizer.h"

#include <algorithm>
#include <random>

#include "core/formats/sentencepiece_model.h"
#include "core/formats/tokenizer_json.h"
#include "core/tokenizers/bpe_tokenizer.h"

namespace specdec {

std::unique_ptr<Tokenizer> merge_tokenizer(const MergePieces& pieces) {
  SentencePieceModel model;
  float score = 0.0F;
  const auto add = [&](const std::string& bytes, PieceType type) {
    const std::string text = replace_all(bytes, " ", kSpaceMark);
    const bool known = std::any_of(model.pieces.begin(), model.pieces.end(),
                                   [&](const SentencePiece& piece) { return piece.text == text; });
    if (!known) {
      model.pieces.push_back({text, score, type});
      score -= 1.0F;
    }
  };
  for (const char* control : {"<pad>", "<eos>", "<bos>"}) {
    add(control, PieceType::kControl);
  }
  add("<unk>", PieceType::kUnknown);
  model.pad = 0;
  model.eos = 1;
  model.bos = 2;
  model.unk = 3;
  for (const std::string& whole : pieces.whole) {
    add(whole, PieceType::kUserDefined);
  }
  for (int byte = 0; byte < 256; ++byte) {
    add(byte_piece(static_cast<unsigned char>(byte)), PieceType::kByte);
  }
  for (const auto* texts : {&pieces.characters, &pieces.joined}) {
    for (const std::string& text : *texts) {
      add(text, PieceType::kNormal);
    }
  }
  return bpe_tokenizer(tokenizer_json(model), "merge_tokenizer");
}

MergePieces random_merge_pieces(uint32_t seed, size_t joined) {
  std::mt19937 random(seed);
  MergePieces pieces = {{"a", "b", "c", " ", "<", ">"}, {"\n", "\n\n", "  ", "   ", "<ab>"}, {}};
  std::vector<std::string> known = pieces.characters;
  while (pieces.joined.size() < joined) {
    std::string text = known[random() % known.size()] + known[random() % known.size()];
    if (text.size() <= 6 && std::find(known.begin(), known.end(), text) == known.end()) {
      known.push_back(text);
      pieces.joined.push_back(std::move(text));
    }
  }
  std::shuffle(pieces.joined.begin(), pieces.joined.end(), random);
  return pieces;
}

}  // namespace specdec
