#include "grammar/regex/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RegexId kNothing = RegexStore::kNothing;
constexpr RegexId kEmpty = RegexStore::kEmpty;
constexpr RegexId kAll = RegexStore::kAll;

RegexId range(RegexStore& store, char32_t first, char32_t last) {
  return store.one_of(CodePoints({{first, last}}));
}

TEST(RegexTest, SimilarExpressionsAreOne) {
  RegexStore store;
  const RegexId a = store.literal(U"a");
  const RegexId b = store.literal(U"bx");
  const RegexId c = store.literal(U"cyz");
  EXPECT_EQ(store.any_of(a, store.any_of(b, c)), store.any_of(store.any_of(c, a), b));
  EXPECT_EQ(store.all_of(b, store.all_of(b, c)), store.all_of(c, b));
  EXPECT_EQ(store.complement(store.complement(b)), b);
  EXPECT_EQ(store.concat(store.concat(a, b), c), store.concat(a, store.concat(b, c)));
  EXPECT_EQ(store.concat(a, kNothing), kNothing);
  EXPECT_EQ(store.any_of(b, kAll), kAll);
  EXPECT_EQ(store.all_of(b, kAll), b);
  EXPECT_EQ(store.any_of(b, store.complement(b)), kAll);
  EXPECT_EQ(store.repeat(store.one_of(CodePoints::all()), 0, std::nullopt), kAll);
  EXPECT_EQ(store.concat(kAll, kAll), kAll);
  EXPECT_EQ(store.repeat(kAll, 2, 3), kAll);
  EXPECT_EQ(store.complement(kAll), kNothing);
  EXPECT_EQ(store.complement(kNothing), kAll);
  EXPECT_EQ(store.concat(store.repeat(b, 1, 2), store.repeat(b, 3, 4)), store.repeat(b, 4, 6));
  EXPECT_EQ(store.any_of(store.repeat(a, 1, 2), store.repeat(a, 3, 4)), store.repeat(a, 1, 4));
  EXPECT_EQ(store.repeat(b, 0, 0), kEmpty);
}

TEST(RegexTest, RepeatOfRepeatKeepsGaps) {
  RegexStore store;
  const RegexId a = store.literal(U"a");
  const RegexId gaps = store.repeat(store.repeat(a, 5, 6), 1, 3);  // 5-6, 10-12, 15-18
  std::vector<size_t> lengths;
  for (const std::u32string& text : store.list(gaps, 100)) {
    lengths.push_back(text.size());
  }
  EXPECT_THAT(lengths, ElementsAre(5, 6, 10, 11, 12, 15, 16, 17, 18));
}

TEST(RegexTest, SurrogatesAreNowhere) {
  RegexStore store;
  EXPECT_EQ(store.next(kAll, 0xD800), kNothing);
  EXPECT_EQ(store.next(kAll, 0xDFFF), kNothing);
  EXPECT_EQ(store.next(kAll, 0xE000), kAll);
  EXPECT_EQ(store.next(store.complement(store.literal(U"no")), 0xDABC), kNothing);
  EXPECT_TRUE(CodePoints({{0xD800, 0xDFFF}}).empty());
  EXPECT_EQ(CodePoints::all().complement(), CodePoints());
}

TEST(RegexTest, HugeCountsCostNothing) {
  RegexStore store(100'000);
  const RegexId any = store.one_of(CodePoints::all());
  RegexId state = store.repeat(any, 0, 1'000'000'000);
  EXPECT_TRUE(store.is_finite(state));
  EXPECT_EQ(store.count(state, 1000), 1000);
  for (int i = 0; i < 1000; ++i) {
    state = store.next(state, 0x1F600);
  }
  EXPECT_EQ(state, store.repeat(any, 0, 999'999'000));
  const RegexId pairs = store.repeat(store.repeat(store.literal(U"ab"), 3, 5), 7, 4'000'000'000);
  EXPECT_EQ(store.shortest(pairs)->size(), 42);
  EXPECT_LT(store.states(), 2000);
}

TEST(RegexTest, ShortestOfALongCountIsQuick) {
  RegexStore store;
  const RegexId letters = range(store, 'a', 'z');
  EXPECT_EQ(store.shortest(store.repeat(letters, 5000, std::nullopt)), std::u32string(5000, 'a'));
  const RegexId both = store.all_of(store.concat(store.repeat(letters, 3, 70'000), kAll),
                                    store.concat(kAll, store.literal(U"!!")));
  EXPECT_EQ(store.shortest(both), U"aaa!!");
  EXPECT_EQ(store.shortest(kNothing), std::nullopt);
}

TEST(RegexTest, EmptyIntersectionsAreFound) {
  RegexStore store;
  const RegexId a = store.literal(U"a");
  const RegexId even = store.repeat(store.literal(U"aa"), 0, std::nullopt);
  const RegexId odd = store.concat(a, even);
  EXPECT_TRUE(store.is_nothing(store.all_of(even, odd)));
  EXPECT_TRUE(store.is_nothing(store.concat(a, store.all_of(even, odd))));
  EXPECT_FALSE(store.is_nothing(store.any_of(a, store.all_of(even, odd))));
  const RegexId ends_b = store.concat(kAll, store.literal(U"b"));
  const RegexId x = store.all_of(ends_b, store.complement(ends_b));
  EXPECT_EQ(x, kNothing);
  const RegexId threes = store.repeat(store.literal(U"aaa"), 1, std::nullopt);
  EXPECT_EQ(store.shortest(store.all_of(odd, threes)), U"aaa");
  EXPECT_EQ(store.next(store.all_of(even, odd), 'a'), kNothing);
}

TEST(RegexTest, ApartIsWhatHasNoTextInCommon) {
  RegexStore store;
  const RegexId letters = store.repeat(range(store, 'a', 'f'), 1, std::nullopt);
  std::vector<RegexId> all = {kNothing, kEmpty, kAll, letters, store.complement(letters)};
  for (const std::u32string_view text : {U"a", U"ab", U"abc", U"bc", U"x"}) {
    all.push_back(store.literal(text));
    all.push_back(store.concat(store.literal(text), kAll));
    all.push_back(store.concat(kAll, store.literal(text)));
    all.push_back(store.complement(all.back()));
  }
  for (const RegexId a : all) {
    for (const RegexId b : all) {
      EXPECT_EQ(store.are_apart(a, b), store.is_nothing(store.all_of(a, b))) << a << " " << b;
    }
  }
  uint64_t steps = 3;
  EXPECT_FALSE(store.are_apart(store.literal(U"abcdef"), store.literal(U"abcdex"), steps));
  EXPECT_EQ(steps, 0U);
}

TEST(RegexTest, CountAndFiniteness) {
  RegexStore store;
  const RegexId digit = range(store, '0', '9');
  EXPECT_EQ(store.count(store.repeat(digit, 1, 3), 1'000'000), 1110);
  EXPECT_EQ(store.count(store.repeat(digit, 1, 3), 1110), 1110);
  EXPECT_EQ(store.count(store.repeat(digit, 1, 3), 1109), 1109);
  EXPECT_EQ(store.count(kNothing, 5), 0);
  EXPECT_EQ(store.count(kAll, 7), 7);
  EXPECT_EQ(store.count(store.one_of(CodePoints::all()), ~uint64_t{0}), 0x110000 - 0x800);
  EXPECT_EQ(store.count(store.repeat(digit, 0, 100), ~uint64_t{0}), ~uint64_t{0});
  const RegexId no_zero = store.complement(store.concat({{kAll, store.literal(U"0"), kAll}}));
  EXPECT_FALSE(store.is_finite(no_zero));
  const RegexId short_ones = store.complement(store.repeat(store.one_of(CodePoints::all()), 3, {}));
  EXPECT_TRUE(store.is_finite(short_ones));
  EXPECT_TRUE(store.is_finite(store.all_of(no_zero, store.repeat(digit, 0, 4))));
  EXPECT_EQ(store.count(store.all_of(no_zero, store.repeat(digit, 4, 4)), 1'000'000), 6561);
}

TEST(RegexTest, ListIsByLengthThenByCodePoints) {
  RegexStore store;
  const RegexId words = store.words({U"b", U"", U"ab", U"\U0001F600", U"aa", U"b"});
  EXPECT_THAT(store.list(words, 100), ElementsAre(U"", U"b", U"\U0001F600", U"aa", U"ab"));
  EXPECT_THAT(store.list(words, 2), ElementsAre(U"", U"b"));
  EXPECT_EQ(store.list(store.repeat(range(store, 'a', 'z'), 50, {}), 3).back(),
            std::u32string(49, 'a') + U"c");
}

TEST(RegexTest, ThousandsOfWordsStayCheap) {
  RegexStore store(200'000);
  std::vector<std::u32string> words;
  for (char32_t i = 0; i < 10'000; ++i) {
    words.push_back({U'a' + i % 26, U'a' + i / 26 % 26, static_cast<char32_t>(0x4E00 + i), U'x'});
  }
  const RegexId trie = store.words(words);
  EXPECT_EQ(store.count(trie, 100'000), words.size());
  EXPECT_TRUE(std::ranges::all_of(words, [&](const auto& word) {
    return store.matches(trie, word) && !store.matches(trie, word.substr(0, 3));
  }));
  EXPECT_LT(store.states(), 2000);
  std::vector<std::u32string> letters;
  for (char32_t i = 0; i < 10'000; ++i) {
    letters.push_back({static_cast<char32_t>(0x4E00 + i), static_cast<char32_t>(0x4E00 + i)});
  }
  EXPECT_EQ(store.transitions(store.words(letters)).size(), 10'002);
}

TEST(RegexTest, LongLiteralsAndDeepExpressionsDoNotOverflowTheStack) {
  RegexStore store;
  std::u32string text(200'000, U'a');
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] += i % 7;
  }
  RegexId state = store.repeat(store.literal(text), 0, std::nullopt);
  for (size_t i = 0; i < 1000; ++i) {
    state = store.next(state, text[i]);
  }
  EXPECT_NE(state, kNothing);
  std::vector<RegexId> optional;
  for (char32_t i = 0; i < 400; ++i) {
    optional.push_back(store.repeat(range(store, 'a' + i % 2, 'a' + i % 2), 0, 1));
  }
  EXPECT_TRUE(store.matches(store.concat(optional), U"bbb"));
  RegexId deep = store.literal(U"end");
  for (int i = 0; i < 100'000; ++i) {
    deep = store.complement(store.any_of(deep, store.concat(range(store, 'a', 'b'), deep)));
  }
  EXPECT_THROW(store.next(deep, 'a'), GrammarError);
}

TEST(RegexTest, TooManyStatesAreAnError) {
  RegexStore store(1000);
  const RegexId any = store.one_of(CodePoints::all());
  const RegexId hard =
      store.concat({{kAll, store.literal(U"a"), store.repeat(any, 20, 20), store.literal(U"b")}});
  try {
    const RegexId few = store.repeat(range(store, 'a', 'b'), 0, 40);
    store.count(store.all_of(hard, few), ~uint64_t{0});
    FAIL() << "no error";
  } catch (const GrammarError& error) {
    EXPECT_THAT(error.what(), HasSubstr("more than 1000 states"));
  }
}

TEST(RegexTest, TextsThatAreTooLongAreAnErrorAtOnce) {
  RegexStore store(10'000);
  const RegexId any = store.one_of(CodePoints::all());
  const RegexId no_end = store.complement(store.concat({{kAll, store.literal(U"end"), kAll}}));
  const RegexId fits = store.all_of(no_end, store.repeat(any, 100, std::nullopt));
  EXPECT_EQ(store.shortest(fits)->size(), 100U);
  const uint64_t before = store.states();
  const RegexId hard = store.all_of(no_end, store.repeat(any, 1'000'000, std::nullopt));
  for (const auto& ask : std::vector<std::function<void()>>{
           [&] { store.is_nothing(hard); }, [&] { store.next(hard, 'a'); },
           [&] { store.shortest(hard); }, [&] { store.list(hard, 1); }}) {
    EXPECT_THAT(error_message<GrammarError>(ask),
                HasSubstr("characters or more take an automaton"));
  }
  EXPECT_LE(store.states() - before, 1U);
}

TEST(RegexTest, OneExpressionLeavesRoomForTheNext) {
  RegexStore store(4'000);
  const RegexId any = store.one_of(CodePoints::all());
  const RegexId few = store.repeat(range(store, 'a', 'z'), 0, 40);
  for (char32_t i = 0; i < 10; ++i) {
    store.allow(1'000);
    const uint64_t before = store.states();
    const RegexId hard = store.concat(
        {{kAll, range(store, 'a', 'b' + i), store.repeat(any, 20, 20), store.literal(U"b")}});
    EXPECT_THROW(store.count(store.all_of(hard, few), ~uint64_t{0}), GrammarError);
    EXPECT_LE(store.states() - before, 1'000U);
    EXPECT_LT(store.states(), 4'000U);
  }
  store.allow(1'000);
  EXPECT_TRUE(store.matches(store.literal(U"no"), U"no"));
}

TEST(RegexTest, FewLargeStatesAreAnErrorToo) {
  RegexStore store(1000);
  RegexId nested = store.repeat(store.one_of(CodePoints::all()), 0, 99);
  for (char32_t i = 0; i < 5; ++i) {
    nested = store.repeat(store.concat(nested, store.repeat(range(store, 'b' + i, 'b' + i), 0, 1)),
                          0, 99);
  }
  try {
    store.matches(nested, std::u32string(1000, 'b'));
    FAIL() << "no error";
  } catch (const GrammarError& error) {
    EXPECT_THAT(error.what(), HasSubstr("or of fewer large ones"));
  }
  EXPECT_LT(store.states(), 100);
}

TEST(RegexTest, SharedPartsAreDerivedOnce) {
  RegexStore store;
  RegexId doubling = store.literal(U"end");
  for (int i = 0; i < 100; ++i) {
    const RegexId a = store.repeat(range(store, 'a', 'a'), 0, 1);
    const RegexId b = store.repeat(store.literal(U"bb"), 0, 1);
    doubling = store.any_of(store.concat(a, doubling), store.concat(b, doubling));
  }
  EXPECT_TRUE(store.matches(doubling, U"abbaend") && !store.matches(doubling, U"abend"));
}

TEST(RegexTest, IntersectionsOfSearchesAreQuick) {
  RegexStore store(5'000);
  std::vector<RegexId> parts;
  for (char32_t i = 0; i < 24; ++i) {
    const std::u32string word = {'a' + i, 'a' + i * 7 % 25, 'a' + i * 3 % 26};
    parts.push_back(store.concat({{kAll, store.literal(word), kAll}}));
  }
  const RegexId all = store.all_of(parts);
  EXPECT_FALSE(store.is_nothing(all));
  EXPECT_LT(store.states(), 500);
}

TEST(RegexTest, ALongSearchFindsAShortText) {
  RegexStore store;
  std::vector<RegexId> parts;
  for (char32_t i = 0; i < 18; ++i) {
    const std::u32string word = {'a' + i, 'a' + i * 7 % 25, 'a' + i * 3 % 26};
    parts.push_back(store.concat({{kAll, store.literal(word), kAll}}));
  }
  const RegexId all = store.all_of(parts);
  const auto text = store.shortest(all);
  ASSERT_TRUE(text.has_value());
  EXPECT_TRUE(store.matches(all, *text));
  EXPECT_LE(text->size(), 6 * parts.size());
}

TEST(RegexTest, StarOf) {
  RegexStore store;
  const CodePoints digits({{'0', '9'}});
  EXPECT_EQ(store.star_of(store.repeat(store.one_of(digits), 0, {})), digits);
  EXPECT_EQ(store.star_of(kAll), CodePoints::all());
  EXPECT_EQ(store.star_of(kEmpty), CodePoints());
  EXPECT_EQ(store.star_of(store.repeat(store.one_of(digits), 1, {})), std::nullopt);
  EXPECT_EQ(store.star_of(store.literal(U"ab")), std::nullopt);
}

TEST(RegexTest, CodePointsAreSets) {
  const CodePoints a({{'d', 'f'}, {'a', 'b'}, {'c', 'c'}, {'x', 'z'}});
  EXPECT_EQ(a.ranges().size(), 2);
  EXPECT_TRUE(a.contains('c') && a.contains('z') && !a.contains('g') && !a.contains(0));
  EXPECT_EQ(a.complement().complement(), a);
  EXPECT_EQ(a.intersect(CodePoints({{'e', 'x'}})), CodePoints({{'e', 'f'}, {'x', 'x'}}));
  EXPECT_EQ(a.unite(a.complement()), CodePoints::all());
}

TEST(RegexTest, Utf8RoundTrip) {
  const std::u32string text = U"a\u00E9\u20AC\U0001F600\U0010FFFF";
  EXPECT_EQ(to_utf8(text), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF");
  EXPECT_EQ(to_code_points(to_utf8(text)), text);
  EXPECT_THROW(to_code_points("a\xED\xA0\x80"), GrammarError);
}

TEST(RegexTest, KeysDoNotDependOnTheOrderOfMaking) {
  const auto make = [](RegexStore& store, bool backwards) {
    std::vector<RegexId> words;
    const std::vector<std::u32string> texts = {U"one", U"two", U"three", U"o"};
    for (size_t i = 0; i < texts.size(); ++i) {
      words.push_back(store.literal(texts[backwards ? texts.size() - 1 - i : i]));
    }
    const RegexId any = store.any_of(words);
    const RegexId letters = store.repeat(range(store, 'a', 'z'), 2, 5);
    return store.all_of(store.complement(any), store.concat(letters, store.repeat(any, 1, {})));
  };
  RegexStore one;
  RegexStore other;
  (void)other.repeat(range(other, '0', '9'), 3, 4);
  EXPECT_EQ(one.key(make(one, false)), other.key(make(other, true)));
  for (const RegexId id : {kNothing, kEmpty, kAll}) {
    EXPECT_EQ(one.key(id), other.key(id));
  }
  const RegexId any = range(other, 0, CodePoints::kLast);
  EXPECT_EQ(other.key(other.repeat(any, 0, {})), one.key(kAll));
  EXPECT_EQ(one.key(one.next(make(one, false), 't')),
            other.key(other.next(make(other, true), 't')));
}

TEST(RegexTest, KeysTellExpressionsApart) {
  RegexStore store;
  const RegexId a = range(store, 'a', 'a');
  const RegexId b = range(store, 'b', 'b');
  std::vector<RegexId> all = {kNothing, kEmpty, kAll, a, b, range(store, 'a', 'b')};
  for (const RegexId part : {a, b}) {
    for (const uint64_t max : {2, 3, 4}) {
      all.push_back(store.repeat(part, 0, max));
      all.push_back(store.repeat(part, 1, max));
    }
    all.push_back(store.repeat(part, 0, {}));
    all.push_back(store.complement(part));
    all.push_back(store.concat(part, store.complement(b)));
    all.push_back(store.concat(a, part));
  }
  all.push_back(store.concat(b, a));
  all.push_back(store.any_of(store.concat(a, b), store.concat(b, a)));
  all.push_back(store.all_of(store.complement(a), store.complement(b)));
  std::set<WideHash::Value> keys;
  for (const RegexId id : all) {
    keys.insert(store.key(id));
  }
  EXPECT_EQ(keys.size(), std::set(all.begin(), all.end()).size());
}

/// A character of these ranges goes on when one of the transitions they meet does.
TEST(RegexTest, GoesOnAsTransitionsSay) {
  RegexStore store;
  std::mt19937 random(3);
  const auto point = [&] {
    return static_cast<char32_t>(random() % 3 == 0 ? random() % 0x10FFFF : random() % 300);
  };
  const auto points = [&] {
    std::vector<CodePoints::Range> ranges;
    for (int i = 0; i < 6; ++i) {
      const char32_t first = point();
      ranges.push_back({first, std::min<char32_t>(first + random() % 40, CodePoints::kLast)});
    }
    return ranges;
  };
  int yes = 0;
  for (int i = 0; i < 400; ++i) {
    const RegexId a =
        store.concat(store.one_of(CodePoints(points())), store.one_of(CodePoints(points())));
    const RegexId b = store.repeat(store.one_of(CodePoints(points())), 1, std::nullopt);
    const RegexId regex = i % 3 == 0   ? a
                          : i % 3 == 1 ? store.any_of(a, b)
                                       : store.all_of(store.complement(a), b);
    const std::vector<CodePoints::Range> ranges = {points()[0], points()[1]};
    bool expected = false;
    char32_t first = 0;
    for (const RegexStore::Transition& transition : store.transitions(regex)) {
      for (const CodePoints::Range& range : ranges) {
        expected |=
            transition.target != kNothing && range.first <= transition.last && range.last >= first;
      }
      first = transition.last + 1;
    }
    EXPECT_EQ(store.goes_on(regex, ranges), expected);
    yes += expected ? 1 : 0;
  }
  EXPECT_GT(yes, 20);
  EXPECT_LT(yes, 380);
}

}  // namespace
}  // namespace specdec
