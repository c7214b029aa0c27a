#include "tests/support/grammar_vocabularies.h"

#include <array>
#include <random>
#include <stdexcept>

#include "tests/support/data_lines.h"

namespace specdec {
namespace {

constexpr std::array kGlued = {
    "\",\"",    "\":\"",      "\":{\"", "\"}",      "\"}}",    "\"]",    "\"],",     "\": ",
    "\", \"",   "{\"",        "[{\"",   "[[",       "]]",      "}]",     "},{\"",    "],[",
    "[\"",      "[1,",        ",1",     "1,",       "0.",      ".5",     "1e",       "e+",
    "-1",       "10",         "true",   "tru",      "e,\"",    "false",  "null",     "null,",
    "l}",       "\\u00",      "\\u",    "\\\"",     "\\\\",    "\\n",    "00e9",     "\\u0061",
    "\\ud83d",  "\\ude00",    "\"\"",   "{}",       "[]",      "\n  \"", ",\n  ",    "\n}",
    "  ",       "\n",         ": ",     ", ",       "a\":",    "b\":",   "\"a\":",   "\"b\":1",
    "{\"a\":",  "abc",        "aa",     "aaa",      "foo",     "bar",    "foo\":",   "\xC3\xA9",
    "\xF0\x9F", "\x98\x80\"", "é\"",    "\xE2\x82", "\xAC\",", "日本",   "\xE6\x97", "a\\"};

constexpr std::array kPieces = {"\"", "\\", ",",  ":",  "{", "}",  "[",  "]",  "a",    "b",    "c",
                                "1",  "0",  "-",  ".",  "e", "u",  "00", "n",  "\xC3", "\xA9", "é",
                                " ",  "\n", "aa", "fo", "o", "ba", "r",  "\"", "\":",  "\",",  "5"};

}  // namespace

std::shared_ptr<GrammarVocabulary> empty_vocabulary() {
  return std::make_shared<GrammarVocabulary>(std::vector<std::string_view>(2),
                                             std::vector{kTinyEnd});
}

std::shared_ptr<GrammarVocabulary> tiny_vocabulary(uint32_t seed, size_t random_tokens,
                                                   const GrammarCache& cache,
                                                   const GrammarVocabularyLimits& limits) {
  std::mt19937 random(seed);
  std::vector<std::string> bytes(2);
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  bytes.insert(bytes.end(), kGlued.begin(), kGlued.end());
  for (size_t i = 0; i < random_tokens; ++i) {
    std::string token;
    for (uint32_t pieces = 1 + random() % 4; pieces > 0; --pieces) {
      token +=
          random() % 4 == 0 ? kGlued[random() % kGlued.size()] : kPieces[random() % kPieces.size()];
    }
    bytes.push_back(std::move(token));
  }
  return std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(bytes.begin(), bytes.end()), std::vector{kTinyEnd}, limits,
      cache);
}

std::shared_ptr<GrammarVocabulary> control_vocabulary() {
  std::vector<std::string> bytes = {"",    "",    "",      "</call>", "",
                                    "\"}", "{\"", "\":\"", "</",      "call>"};
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  auto vocabulary = std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(bytes.begin(), bytes.end()), std::vector{kTinyEnd, kTurnEnd});
  vocabulary->name_control_tokens({{"<|call|>", kCall}, {"<|turn_end|>", kTurnEnd}});
  return vocabulary;
}

JsonSchemaOptions json_options(bool schema_order, const std::string& whitespace,
                               EscapeStyle escapes) {
  JsonSchemaOptions options;
  options.schema_order = schema_order;
  options.whitespace = whitespace;
  options.escapes = escapes;
  return options;
}

std::vector<std::string> grammar_data(const std::string& name) {
  return data_lines(std::string(SPECDEC_SOURCE_DIR) + "/tests/data/grammar/" + name);
}

}  // namespace specdec
