#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// Cuts a text into the stretches that byte-level BPE never joins across. Each regular expression
/// in turn splits every stretch that the ones before have left: a match is a stretch, and so is
/// what lies between two. Expressions are Oniguruma's, as in tokenizer.json. Immutable, shared
/// between threads.
class PreTokenizer {
 public:
  /// Throws WeightsError, naming `where`, for a pattern that is not a regular expression
  /// or that holds what is not supported, which it names.
  PreTokenizer(const std::vector<std::string>& patterns, const std::string& where);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&& other) noexcept;
  PreTokenizer& operator=(PreTokenizer&& other) noexcept;

  /// Stretches of a text that is UTF-8, in order; together they are the text.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  class Pattern;
  std::vector<std::unique_ptr<const Pattern>> patterns_;
};

/// GPT-2's expression, the one of tokenizer.json's ByteLevel.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A byte-level tokenizer as GGUF names it in tokenizer.ggml.pre.
struct NamedPreTokenizer {
  const char* name;
  std::vector<std::string> patterns;
  bool ignore_merges = false;  ///< a stretch that is a token is taken as it is
  bool nfc = false;            ///< text is composed first
  bool adds_bos = false;
};
/// "smollm", "llama-bpe", "qwen2", "tekken" and their aliases; nullptr for others.
const NamedPreTokenizer* find_pre_tokenizer(std::string_view name);
/// The one that splits alike; nullptr where none does.
const NamedPreTokenizer* find_pre_tokenizer(const std::vector<std::string>& patterns,
                                            bool ignore_merges, bool nfc);
/// "smollm, llama-bpe, qwen2, ...", for messages.
std::string pre_tokenizer_names();

}  // namespace specdec
