#include "grammar/json/name_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "grammar/regex/regex_parser.h"

namespace specdec {
namespace {

/// Texts of a and b up to a length.
std::vector<std::u32string> short_texts(size_t length) {
  std::vector<std::u32string> texts = {U""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() < length) {
      texts.push_back(texts[i] + U'a');
      texts.push_back(texts[i] + U'b');
    }
  }
  return texts;
}

TEST(NameClassesTest, EveryNameIsInTheOneClassOfItsLanguages) {
  const std::vector<std::string> patterns = {"^a",    "b$",    "^[ab]{2}$", "^a{0,3}$",
                                             "aa",    "^$",    "^a*$",      "^b*$",
                                             "(ab)+", "^ab?$", "^.{5}$",    "c"};
  const std::vector<std::u32string> texts = short_texts(6);
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    RegexStore regexes;
    FormulaStore formulas(regexes);
    NameClasses classes(formulas);
    std::vector<NameClasses::Language> languages;
    for (uint32_t i = random() % 5; i > 0; --i) {
      const RegexId id = parse_regex(regexes, patterns[random() % patterns.size()], true);
      const bool known = std::ranges::count(languages, id, &NameClasses::Language::id) > 0;
      if (!known) {
        languages.push_back({id, random() % 4 > 0});
      }
    }
    const std::vector<NameClass>* found = classes.split(languages);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(classes.split(languages), found);
    for (const NameClass& names : *found) {
      EXPECT_FALSE(regexes.is_nothing(names.language));
      const bool listed = !names.names.empty();
      EXPECT_EQ(listed,
                regexes.is_finite(names.language) && regexes.count(names.language, 65) <= 64);
      EXPECT_EQ(names.names.size(), listed ? regexes.count(names.language, 65) : 0);
    }
    for (const std::u32string& text : texts) {
      std::vector<uint32_t> inside;
      bool allowed = true;
      for (uint32_t i = 0; i < languages.size(); ++i) {
        if (regexes.matches(languages[i].id, text)) {
          inside.push_back(i);
          allowed = allowed && languages[i].allowed;
        }
      }
      int classes_of_it = 0;
      for (const NameClass& names : *found) {
        if (regexes.matches(names.language, text)) {
          ++classes_of_it;
          EXPECT_EQ(names.inside, inside);
          const NameId name = formulas.name(to_utf8(text));
          EXPECT_EQ(std::ranges::count(names.names, name), names.names.empty() ? 0 : 1);
        }
      }
      EXPECT_EQ(classes_of_it, allowed ? 1 : 0);
    }
  }
}

TEST(NameClassesTest, TooManyClassesAreNone) {
  RegexStore regexes;
  FormulaStore formulas(regexes);
  NameClasses classes(formulas);
  std::vector<NameClasses::Language> languages;
  for (char c = 'a'; c < 'i'; ++c) {  // each in or out: 2^8 classes
    languages.push_back({parse_regex(regexes, std::string(1, c), true), true});
  }
  ASSERT_NE(classes.split(languages), nullptr);
  EXPECT_EQ(classes.split(languages)->size(), NameClasses::kMax);
  languages.push_back({parse_regex(regexes, "i", true), true});
  EXPECT_EQ(classes.split(languages), nullptr);
  languages.back().allowed = false;
  ASSERT_NE(classes.split(languages), nullptr);
  EXPECT_EQ(classes.split(languages)->size(), NameClasses::kMax);
}

}  // namespace
}  // namespace specdec
