#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/regex/regex.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {

/// A regular expression as it is written.
struct RegexSyntax {
  enum class Kind : uint8_t { kPoint, kConcat, kOr, kRepeat, kStart, kEnd, kLook, kBoundary };
  struct Node {
    Kind kind = Kind::kConcat;
    bool asserts = false;   ///< there is an assertion in it: it sees text that it does not match
    bool negative = false;  ///< kLook, kBoundary
    bool behind = false;    ///< kLook
    bool lazy = false;      ///< kRepeat
    uint32_t points = 0;    ///< kPoint: of `classes`; kBoundary: the word characters
    uint64_t min = 0;       ///< kRepeat
    uint64_t max = 0;       ///< kRepeat; kUnbounded for any number
    size_t position = 0;    ///< where it begins, for errors
    std::vector<uint32_t> children = {};
  };
  static constexpr uint64_t kUnbounded = ~uint64_t{0};

  std::vector<Node> nodes;
  std::vector<CodePoints> classes;
  uint32_t root = 0;
  std::u32string pattern;

  /// Throws GrammarError with the pattern and the position in front of the message.
  [[noreturn]] void fail(size_t position, const std::string& message) const;
};

/// Reads the syntax of a dialect, as parse_regex describes it.
class RegexSyntaxParser {
 public:
  RegexSyntaxParser(std::string_view pattern, RegexDialect dialect);
  RegexSyntax parse();

 private:
  using Kind = RegexSyntax::Kind;
  struct Flags {
    bool ignore_case = false;
    bool dot_all = false;
    bool lines = false;    ///< `m`: '^' and '$' at line ends
    bool verbose = false;  ///< `x`
    bool ascii = false;    ///< `a`
  };

  bool is_python() const { return dialect_ == RegexDialect::kPython; }
  bool at_end() const { return position_ >= text_.size(); }
  bool looking_at(std::u32string_view prefix) const;
  bool accept(std::u32string_view prefix);
  char32_t peek(size_t ahead = 0) const;

  uint32_t add(RegexSyntax::Node node);
  uint32_t add_points(const CodePoints& points, size_t position);
  uint32_t class_index(const CodePoints& points);

  uint32_t alternatives();
  void forget_names(size_t first, std::vector<std::u32string_view>& forgotten);
  uint32_t sequence();
  void skip_ignored();
  uint32_t term();
  uint32_t anchor();
  uint32_t look_for(bool behind, uint32_t body, size_t position);
  uint32_t quantified(uint32_t atom);
  uint32_t group();
  void refuse_group(size_t start);
  std::optional<uint32_t> flag_group(size_t start);
  void set_flag(char32_t flag, bool value, size_t start);
  uint32_t look(size_t start, bool behind, bool negative);
  uint32_t group_body(Kind kind, size_t start);
  void skip_group_name(size_t start);
  std::optional<std::pair<uint64_t, uint64_t>> braces();
  uint64_t number();
  void refuse_open_count() const;

  uint32_t escape_term();
  bool refers_back() const;
  CodePoints bracket_class();
  CodePoints class_member(std::optional<char32_t>& single);
  std::optional<CodePoints> class_escape();
  CodePoints property_escape(bool negative);
  void refuse_named_class() const;
  char32_t character_escape();
  struct OctalEscape {
    size_t length = 0;
    std::string instead;
  };
  void refuse_word_edge() const;
  [[noreturn]] void refuse_escape(size_t start) const;
  [[noreturn]] void refuse_reference(size_t start) const;
  std::optional<OctalEscape> octal_escape(size_t start) const;
  std::optional<char32_t> python_escape(size_t start);
  char32_t octal_digits(size_t most, size_t start);
  char32_t unicode_escape(size_t start);
  char32_t hex_digits(size_t count, size_t start);
  CodePoints fold(const CodePoints& points) const;
  CodePoints digits() const;
  CodePoints spaces() const;
  CodePoints words() const;

  RegexDialect dialect_;
  RegexSyntax syntax_;
  std::u32string_view text_;
  size_t position_ = 0;
  size_t flags_end_ = 0;  ///< behind the flags at the beginning
  int depth_ = 0;
  Flags flags_;
  std::vector<std::u32string_view> names_;    ///< of groups that may match together with the next
  std::set<std::u32string_view> open_names_;  ///< the same ones
  std::map<std::pair<char32_t, bool>, uint32_t> letters_;  ///< class of a letter, by case folding
};

}  // namespace specdec
