#include "grammar/regex/string_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "core/error.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

/// Formats built once: they share a store.
class Formats {
 public:
  bool accepts(const std::string& name, const std::string& text) {
    auto place = formats_.find(name);
    if (place == formats_.end()) {
      place = formats_.emplace(name, string_format(store_, name).value()).first;
    }
    return store_.matches(place->second, to_code_points(text));
  }
  const RegexStore& store() const { return store_; }

 private:
  RegexStore store_;
  std::map<std::string, RegexId> formats_;
};

struct FormatCase {
  const char* format;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

std::vector<FormatCase> simple_formats() {
  return {
      {"date",
       {"2024-02-29", "2000-02-29", "0000-02-29", "1999-12-31", "2023-04-30"},
       {"2023-02-29", "1900-02-29", "2100-02-29", "2023-04-31", "2023-13-01", "2023-00-10",
        "2023-01-00", "23-01-01", "2023-1-01", "2023-01-32", "2024-02-30"}},
      {"time",
       {"00:00:00Z", "23:59:59.123+23:59", "23:59:60Z", "23:59:60.5z", "01:29:60+01:30",
        "15:59:60-08:00", "23:59:60-00:00"},
       {"24:00:00Z", "12:60:00Z", "12:00:61Z", "22:59:60Z", "23:59:60+00:30", "12:00:00",
        "12:00:00.Z", "12:00:00+24:00", "12:00:00+00:60", "23:58:60Z"}},
      {"date-time",
       {"2024-02-29T12:00:00Z", "1998-12-31t15:59:60.123-08:00"},
       {"2023-02-29T12:00:00Z", "2024-02-29 12:00:00Z", "1998-12-31T23:59:60-08:00"}},
      {"duration",
       {"P1Y2M3DT4H5M6S", "PT36H", "P2W", "PT1M2S"},
       {"P", "PT", "P1Y2D", "PT1H2S", "P1Y2W", "PT0.5S", "-P1D"}},
      {"email",
       {"a.b@example.com", "\"a b\\\"\"@example.com", "a@[127.0.0.1]", "a@[IPv6:::1]"},
       {".a@b.c", "a.@b.c", "a..b@c", "a@", "@b", "a@b_c", "a@[300.1.1.1]", "a b@c"}},
      {"idn-email", {"실례@실례.테스트", "a@b.c"}, {"a", "user＠example.com"}},
      {"hostname",
       {"a", "example.com", "a--b.c", "1host", "A-1.b"},
       {"", ".", "a.", ".a", "-a", "a-", "a_b", "xn--X", "ab--c", "a..b"}},
      {"idn-hostname",
       {"실례.테스트", "a。b", "例え", "plain.example"},
       {"", "。", "-a", "aא", "0a.א", "a·l", "xn--X", "〱", "̀hello", "A例"}},
      {"ipv4",
       {"0.0.0.0", "255.249.199.99"},
       {"256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.4 ", "1.2.3.0x4"}},
      {"ipv6",
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2::7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4",
        "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::1.2.3.4"},
       {"1:2:3:4:5:6:7", "1::2::3", ":::", "12345::", "1:2:3:4:5:6:7:8:9", "::1%eth0",
        "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3", ":1", "1:2:3:4::5:6:7:8", "1::2:3:4:5:6:1.2.3.4"}},
      {"uri",
       {"http://a.b/c?d=e#f", "urn:x:y", "mailto:a@b", "http://[::1]:80/", "file:///etc", "a:"},
       {"//a/b", "/a", "a b:c", "http://a b", "1a:b", "http://[::1", "a:%zz", "a:é", "a:\\b"}},
      {"uri-reference", {"", "/a/b", "//h/p", "a/b:c", "#f", "?q"}, {"a b", "\\a", "1:b", "#a#b"}},
      {"iri", {"http://ƒøø.ßår/?∂=π", "urn:é"}, {"/é", "http://é é"}},
      {"iri-reference", {"âππ", "#ƒ"}, {"#ƒrä\\gmênt", "\\é"}},
      {"uuid",
       {"2eb8aa08-AA98-11ea-b4aa-73b441d16380"},
       {"2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638",
        "2eb8aa0g-aa98-11ea-b4aa-73b441d16380"}},
      {"uri-template",
       {"", "a{b}c", "{?x,y*}", "{v:1000}", "%41"},
       {"{", "}", "{}", "{a,,b}", "{v:0}", "a b", "%4", "{a..b}", "a\\b"}},
      {"json-pointer", {"", "/", "/a~0b~1", "//a\n"}, {"a", "/~", "/~2", "#", "0"}},
      {"relative-json-pointer", {"0", "12#", "1/a"}, {"", "01", "-1", "#", "/a", "1a"}},
  };
}

FormatCase regexes() {
  return {"regex",
          {"",
           "a|",
           "^[a-z]+(?:-[a-z]+)*$",
           "(a(?=b)(?!c)(?<=d)(?<!e))??",
           "\\d{1,3}\\.\\w{0,12}?",
           "[]",
           "[^]",
           "[-\\w.]",
           "[\\d-]",
           "[!-~]",
           "[a-é]",
           "[\\u4e00-\\u9fa5]",
           "\\u{1F600}",
           "\\p{L}\\P{Script=Greek}",
           "\\cA\\x41\\u0041\\/",
           "x{3}",
           "x{10,}",
           "x{7,100}",
           "(((())))",
           "[\\x00-\\x1F]",
           ".\n\t é",
           "[[]",
           "[\\b\\-]"},
          {"(",     ")",      "a)",        "[a",      "[z-a]",       "[\\d-z]",
           "*",     "a**",    "a{2,1}",    "a{12,9}", "{",           "}",
           "]",     "a{1",    "\\",        "\\a",     "\\Z",         "\\-",
           "\\u12", "\\x1",   "\\p{Nope}", "\\p",     "(?P<n>a)",    "(?#a)",
           "(?i)a", "(?=a)*", "^*",        "\\1",     "\\u{110000}", "[\\u9fa5-\\u4e00]",
           "a++",   "(?",     "(?:"}};
}

std::vector<FormatCase> cases() {
  std::vector<FormatCase> all = simple_formats();
  all.push_back(regexes());
  return all;
}

TEST(StringFormatTest, AcceptsWhatItsSpecificationDoes) {
  Formats formats;
  for (const FormatCase& format : cases()) {
    for (const char* text : format.valid) {
      EXPECT_TRUE(formats.accepts(format.format, text)) << format.format << " '" << text << "'";
    }
    for (const char* text : format.invalid) {
      EXPECT_FALSE(formats.accepts(format.format, text)) << format.format << " '" << text << "'";
    }
  }
}

TEST(StringFormatTest, LengthsOfHostNames) {
  Formats formats;
  const std::string label(63, 'a');
  EXPECT_TRUE(formats.accepts("hostname", label));
  EXPECT_FALSE(formats.accepts("hostname", label + "a"));
  const std::string three = label + "." + label + "." + label + ".";
  EXPECT_TRUE(formats.accepts("hostname", three + std::string(61, 'a')));
  EXPECT_FALSE(formats.accepts("hostname", three + std::string(62, 'a')));
  EXPECT_TRUE(formats.accepts("email", std::string(64, 'a') + "@a"));
  EXPECT_FALSE(formats.accepts("email", std::string(65, 'a') + "@a"));
}

TEST(StringFormatTest, UnknownNames) {
  RegexStore store;
  EXPECT_EQ(string_format(store, "color"), std::nullopt);
}

/// What is accepted compiles, and stays so when it grows.
TEST(StringFormatTest, RegularExpressionsAreValid) {
  RegexStore store;
  const RegexId format = *string_format(store, "regex");
  std::mt19937 random(3);
  const std::u32string letters = U"aZ09 ()[]{}?*+|^$.\\-,:=!<>dDwsbBpPuxcLe/é";
  int read = 0;
  for (int round = 0; round < 300; ++round) {
    std::u32string text;
    RegexId state = format;
    for (int i = 0; i < 12; ++i) {
      const char32_t c = letters[random() % letters.size()];
      if (const RegexId next = store.next(state, c); next != RegexStore::kNothing) {
        text += c;
        state = next;
      }
    }
    text += store.shortest(state).value();
    ASSERT_TRUE(store.matches(format, text));
    try {
      parse_regex(store, to_utf8(text), true);
      ++read;
    } catch (const GrammarError& error) {
      EXPECT_THAT(error.what(), HasSubstr("not supported")) << to_utf8(text);
    }
  }
  EXPECT_GT(read, 200);
}

TEST(StringFormatTest, DatesAreAllThatExist) {
  RegexStore store;
  const RegexId date = *string_format(store, "date");
  EXPECT_EQ(store.count(date, 10'000'000), 10'000 * 365 + 2425);  // leap years in 0000..9999
  const RegexId offset = store.concat(RegexStore::kAll, store.literal(U"Z"));
  const RegexId whole = store.repeat(store.one_of(CodePoints::all()), 9, 9);
  const RegexId times = store.all_of({{*string_format(store, "time"), offset, whole}});
  EXPECT_EQ(store.count(times, 10'000'000), 86'400 + 1);
}

/// The official tests of the formats; what is valid may be refused only where the format says so.
TEST(StringFormatTest, JsonSchemaTestSuite) {
  std::ifstream file(SPECDEC_SOURCE_DIR "/../shared/schemas/jsts_draft2020-12.jsonl");
  if (!file) {
    GTEST_SKIP() << "no test suite here";
  }
  const std::set<std::string> partial = {"hostname", "idn-hostname", "idn-email", "regex"};
  Formats formats;
  std::string line;
  while (std::getline(file, line)) {
    const auto group = nlohmann::json::parse(line);
    const std::string name = group["schema"].is_object() ? group["schema"].value("format", "") : "";
    if (group["file"].get<std::string>().rfind("optional/format/", 0) != 0 || name == "unknown" ||
        name.empty()) {
      continue;
    }
    for (const auto& test : group["tests"]) {
      if (!test["data"].is_string()) {
        continue;
      }
      const bool accepted = formats.accepts(name, test["data"].get<std::string>());
      const bool valid = test["valid"].get<bool>();
      EXPECT_TRUE(valid || !accepted) << name << " accepts " << test["data"];
      EXPECT_TRUE(!valid || accepted || partial.count(name) > 0)
          << name << " refuses " << test["data"];
    }
  }
  RecordProperty("states", static_cast<int>(formats.store().states()));
}

}  // namespace
}  // namespace specdec
