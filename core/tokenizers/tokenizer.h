#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/added_flags.h"
#include "core/types.h"

namespace specdec {

/// The longest text that a tokenizer encodes: SentencePiece counts bytes in int, and normalising
/// can make a text three times as long.
inline constexpr size_t kMaxTextBytes = size_t{1} << 29U;

/// How a tokenizer cuts a text that is UTF-8: first it finds the `whole` pieces, leftmost first,
/// the longest of those that begin at a place. Between them each character is its piece, or its
/// bytes where it has none; then neighbours are joined, the lowest rank first, the leftmost of
/// equals.
struct MergeRules {
  struct Merge {
    Token left = 0, right = 0, result = 0;
    uint32_t rank = 0;
  };
  std::vector<Merge> merges;  ///< each pair of tokens once, in any order
  std::vector<Token> whole;   ///< never joined to anything
};

/// What stands before a text that is encoded. Llama 2's and Mistral 7B's tokenizers put a space
/// before texts, but not before those that go on.
enum class TextStart : uint8_t {
  kInput,         ///< nothing, or the <bos> that every input has
  kAfterControl,  ///< a control piece, as between the turns of a chat
  kContinued      ///< text
};

/// Text to tokens and back. Immutable and shared between threads. Ids
/// outside the vocabulary (models pad theirs) stand for no bytes and have an empty piece.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int64_t vocab_size() const = 0;
  /// Ids of a text, without <bos>. Control pieces written in the text ("<bos>") are text, except
  /// the user-defined ones (Gemma's <start_of_turn>), which become their one id as in the
  /// reference. Bytes that are not UTF-8 become byte pieces, so that they too decode to what they
  /// were; only "▁" itself is taken for a space. Tokenizers with a prefix space (Llama 2's) decode
  /// to a text with that space before it.
  std::vector<Token> encode(std::string_view text) const {
    return encode_after(TextStart::kInput, text);
  }
  /// Ids of a part of the input, by what stands before it.
  virtual std::vector<Token> encode_after(TextStart start, std::string_view text) const = 0;
  /// The bytes that a token stands for: "▁" is a space, <0xNN> one byte; control and unknown pieces
  /// stand for none. Lives as long as the tokenizer.
  virtual std::string_view token_bytes(Token token) const = 0;
  /// The piece as the vocabulary spells it.
  virtual std::string_view piece(Token token) const = 0;
  /// Id of a piece, if the vocabulary has it.
  virtual std::optional<Token> find_piece(std::string_view piece) const = 0;
  /// <bos> and <eos>, by tokenizer_config.json, else by the tokenizer's own file.
  virtual std::optional<Token> bos() const = 0;
  virtual std::optional<Token> eos() const = 0;

  /// True when a text that a model is to read begins with <bos>, if there is one.
  virtual bool adds_bos() const = 0;
  /// The checkpoint's own chat template, in jinja; "" when its files have none.
  virtual std::string_view chat_template() const { return {}; }
  /// The file that has the template; "" where it is not known.
  virtual std::string_view chat_template_file() const { return {}; }

  /// What a control piece does to the text around it (see SpecialEncoder).
  virtual AddedFlags added_flags(Token /*token*/) const { return {}; }

  /// What `encode` goes by; nothing when it goes by other rules.
  virtual std::optional<MergeRules> merge_rules() const { return std::nullopt; }

  /// Bytes of all tokens, one after the other.
  std::string decode(TokenSpan tokens) const;
};

/// `path`: a tokenizer.model (SentencePiece), tokenizer.json (Hugging Face) or GGUF file, or a
/// checkpoint folder (tokenizer_file says which of its files). Throws Error saying what is wrong
/// with the file. Adds what a user should know of a tokenizer that can be used to `notes`, if
/// given.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          std::vector<std::string>* notes = nullptr);

/// Pieces but for the unused ones at the end, with which GGUF fills vocabularies up.
int64_t used_pieces(const Tokenizer& tokenizer);

/// True when both map text to the same ids: same pieces under the same ids, of which the one may
/// have more unused ones at its end. `reason` says the first difference.
bool same_vocabulary(const Tokenizer& a, const Tokenizer& b, std::string& reason);

/// Turns a stream of tokens into text, never splitting a UTF-8 character: bytes of an unfinished
/// character wait for the next token; bytes that can not become one are given as U+FFFD.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Text that this token completes.
  std::string push(Token token);
  /// What is left, at the end.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string waiting_;
};

}  // namespace specdec
