#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// A set of Unicode code points: sorted ranges that neither touch nor overlap. Surrogates
/// (U+D800..DFFF) are never in it: text has none.
class CodePoints {
 public:
  struct Range {
    char32_t first = 0;
    char32_t last = 0;
    bool operator==(const Range&) const = default;
  };
  static constexpr char32_t kLast = 0x10FFFF;

  CodePoints() = default;
  explicit CodePoints(const std::vector<Range>& ranges);  ///< in any order, overlapping or not
  static CodePoints all();

  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  uint64_t size() const;
  CodePoints complement() const;
  CodePoints unite(const CodePoints& other) const;
  CodePoints intersect(const CodePoints& other) const;
  bool operator==(const CodePoints&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// UTF-8 to code points; throws GrammarError when it is not UTF-8.
std::u32string to_code_points(std::string_view utf8);
std::string to_utf8(std::u32string_view text);

}  // namespace specdec
