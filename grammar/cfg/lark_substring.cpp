#include "grammar/cfg/lark_substring.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/regex/regex_unicode.h"

namespace specdec {
namespace {

constexpr std::string_view kJsonEscapes = "\"\\/f";

void skip_json_space(GrammarText& text) {
  while (text.peek() == ' ' || text.peek() == '\t' || text.peek() == '\n' || text.peek() == '\r') {
    text.skip(1);
  }
}

std::u32string take_text(GrammarText& text) {
  skip_json_space(text);
  if (text.peek() != '"') {
    text.fail(fmt::format("expected a text in quotes, found {}", text.here()));
  }
  std::u32string result = text.take_quoted(kJsonEscapes);
  skip_json_space(text);
  return result;
}

std::vector<std::u32string> take_texts(GrammarText& text) {
  std::vector<std::u32string> texts;
  skip_json_space(text);
  if (!text.accept("[")) {
    text.fail(fmt::format("expected a list of texts, found {}", text.here()));
  }
  do {
    texts.push_back(take_text(text));
  } while (text.accept(","));
  if (!text.accept("]")) {
    text.fail(fmt::format("expected ',' or ']', found {}", text.here()));
  }
  skip_json_space(text);
  return texts;
}

/// Runs of characters of one kind.
std::vector<std::u32string> words_of(const std::u32string& text) {
  const CodePoints letters = unicode_property("L")->unite(*unicode_property("N"));
  const CodePoints spaces = *unicode_property("White_Space");
  const auto kind = [&](char32_t c) {
    return letters.contains(c) || c == '_' ? 0 : spaces.contains(c) ? 1 : 2;
  };
  std::vector<std::u32string> words;
  for (const char32_t c : text) {
    if (words.empty() || kind(words.back().back()) != kind(c)) {
      words.emplace_back();
    }
    words.back() += c;
  }
  return words;
}

std::vector<std::u32string> take_chunks(GrammarText& text) {
  const size_t start = text.position();
  const std::u32string key = take_text(text);
  if (!text.accept(":")) {
    text.fail(fmt::format("expected ':', found {}", text.here()));
  }
  if (key == U"substring_chunks") {
    return take_texts(text);
  }
  if (key == U"substring_words") {
    return words_of(take_text(text));
  }
  if (key != U"substring_chars") {
    text.fail(start, "%regex knows substring_chunks, substring_words and substring_chars");
  }
  std::vector<std::u32string> characters;
  for (const char32_t c : take_text(text)) {
    characters.emplace_back(1, c);
  }
  return characters;
}

}  // namespace

std::pair<RegexId, uint64_t> read_lark_substring(RegexStore& regexes, GrammarText& text) {
  if (!text.accept("{")) {
    text.fail(fmt::format("expected '{{' after %regex, found {}", text.here()));
  }
  const std::vector<std::u32string> chunks = take_chunks(text);
  if (!text.accept("}")) {
    text.fail(fmt::format("expected '}}', found {}", text.here()));
  }
  uint64_t size = 0;
  RegexId rest = RegexStore::kEmpty;
  std::vector<RegexId> all = {RegexStore::kEmpty};
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    size += chunk->size();
    const RegexId from_here = regexes.concat(regexes.literal(*chunk), rest);
    all.push_back(from_here);
    rest = regexes.any_of(RegexStore::kEmpty, from_here);
  }
  return {regexes.any_of(all), size};
}

}  // namespace specdec
