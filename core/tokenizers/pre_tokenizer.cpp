#include "core/tokenizers/pre_tokenizer.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/oniguruma.h"

namespace specdec {
namespace {

std::string pcre2_message(int code) {
  constexpr size_t kLongest = 256;
  std::string message(kLongest, '\0');
  const int length =
      pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(message.data()), kLongest);
  message.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return message;
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

class PreTokenizer::Pattern {
 public:
  Pattern(const std::string& pattern, const std::string& where)
      : named_(fmt::format("{}: the pre-tokenizer's expression \"{}\"", where, pattern)) {
    const std::string text = translated(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
    if (code_ == nullptr) {
      throw WeightsError(fmt::format("{} cannot be used: {}.", named_, pcre2_message(error)));
    }
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // where it is not to be had, matching is slower
  }
  ~Pattern() { pcre2_code_free(code_); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  void split(std::string_view text, std::vector<std::string_view>& out) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(
        pcre2_match_data_create_from_pattern(code_, nullptr));
    size_t begin = 0;  // of what no match has taken
    size_t at = 0;
    bool matched = false;
    while (at < text.size() && find(text, at, match.get())) {
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
      if (matched && range[1] == range[0] && range[0] == begin) {  // empty behind a match: none
        at += scan_utf8(text.substr(at)).bytes;
        continue;
      }
      append(text, begin, range[0], out);
      append(text, range[0], range[1], out);
      begin = range[1];
      at = begin;
      matched = true;
    }
    append(text, begin, text.size(), out);
  }

 private:
  /// The file's expressions are Oniguruma's.
  std::string translated(const std::string& pattern) const {
    try {
      return "(*LF)" + pcre2_of_oniguruma(pattern);
    } catch (const Error& error) {
      throw WeightsError(fmt::format("{} cannot be used: {}.", named_, error.what()));
    }
  }

  static void append(std::string_view text, size_t begin, size_t end,
                     std::vector<std::string_view>& out) {
    if (end > begin) {
      out.push_back(text.substr(begin, end - begin));
    }
  }

  bool find(std::string_view text, size_t at, pcre2_match_data* match) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
    int result = pcre2_match(code_, bytes, text.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter has its memory on the heap
      result = pcre2_match(code_, bytes, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match,
                           nullptr);
    }
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
      throw Error(fmt::format(
          "{} takes too long or too much memory for a text of {} bytes ({}). Give a shorter text.",
          named_, text.size(), pcre2_message(result)));
    }
    return result >= 0;
  }

  std::string named_;  // for messages
  pcre2_code* code_ = nullptr;
};

PreTokenizer::PreTokenizer(const std::vector<std::string>& patterns, const std::string& where) {
  for (const std::string& pattern : patterns) {
    patterns_.push_back(std::make_unique<const Pattern>(pattern, where));
  }
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&& other) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&& other) noexcept = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> stretches;
  if (!text.empty()) {
    stretches.push_back(text);
  }
  for (const auto& pattern : patterns_) {
    std::vector<std::string_view> finer;
    for (const std::string_view stretch : stretches) {
      pattern->split(stretch, finer);
    }
    stretches = std::move(finer);
  }
  return stretches;
}

namespace {

constexpr const char* kDigit = R"(\p{N})";
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Pre-tokenizers by llama.cpp's names. Of two that split alike, `specdec convert` writes the
/// first.
const std::vector<NamedPreTokenizer>& named_pre_tokenizers() {
  static const std::vector<NamedPreTokenizer> all = [] {
    const NamedPreTokenizer llama3{
        .name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true};
    const NamedPreTokenizer qwen2{.name = "qwen2", .patterns = {kQwen2Pattern}, .nfc = true};
    std::vector<NamedPreTokenizer> known = {
        {.name = "smollm", .patterns = {kDigit, kGpt2Pattern}},
        llama3,
        qwen2,
        {.name = "tekken", .patterns = {kTekkenPattern}, .ignore_merges = true, .adds_bos = true}};
    for (const char* alias : {"llama3", "llama-v3"}) {
      known.push_back(llama3);
      known.back().name = alias;
    }
    known.push_back(qwen2);
    known.back().name = "deepseek-r1-qwen";
    return known;
  }();
  return all;
}

}  // namespace

const NamedPreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const NamedPreTokenizer& known : named_pre_tokenizers()) {
    if (name == known.name) {
      return &known;
    }
  }
  return nullptr;
}

const NamedPreTokenizer* find_pre_tokenizer(const std::vector<std::string>& patterns,
                                            bool ignore_merges, bool nfc) {
  for (const NamedPreTokenizer& known : named_pre_tokenizers()) {
    if (patterns == known.patterns && ignore_merges == known.ignore_merges && nfc == known.nfc) {
      return &known;
    }
  }
  return nullptr;
}

std::string pre_tokenizer_names() {
  std::string names;
  for (const NamedPreTokenizer& known : named_pre_tokenizers()) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return names;
}

}  // namespace specdec
