#include "grammar/regex/code_points.h"

#include <algorithm>

#include "core/error.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr char32_t kSurrogateFirst = 0xD800;
constexpr char32_t kSurrogateLast = 0xDFFF;

/// The code point of one well-formed UTF-8 character.
char32_t decode(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) {
    return lead;
  }
  char32_t point = lead & (0x7Fu >> character.size());
  for (const char byte : character.substr(1)) {
    point = point << 6 | (static_cast<unsigned char>(byte) & 0x3Fu);
  }
  return point;
}

/// What is left of a range without surrogates and without what lies above the last code point.
void append_text_part(CodePoints::Range range, std::vector<CodePoints::Range>& out) {
  range.last = std::min(range.last, CodePoints::kLast);
  if (range.first > range.last) {
    return;
  }
  if (range.last < kSurrogateFirst || range.first > kSurrogateLast) {
    out.push_back(range);
    return;
  }
  if (range.first < kSurrogateFirst) {
    out.push_back({range.first, kSurrogateFirst - 1});
  }
  if (range.last > kSurrogateLast) {
    out.push_back({kSurrogateLast + 1, range.last});
  }
}

}  // namespace

CodePoints::CodePoints(const std::vector<Range>& ranges) {
  std::vector<Range> sorted;
  sorted.reserve(ranges.size() + 1);
  for (const Range& range : ranges) {
    append_text_part(range, sorted);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : sorted) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePoints CodePoints::all() { return CodePoints({{0, kLast}}); }

uint64_t CodePoints::size() const {
  uint64_t size = 0;
  for (const Range& range : ranges_) {
    size += range.last - range.first + 1;
  }
  return size;
}

bool CodePoints::contains(char32_t c) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), c,
                       [](char32_t point, const Range& range) { return point < range.first; });
  return after != ranges_.begin() && c <= std::prev(after)->last;
}

CodePoints CodePoints::complement() const {
  std::vector<Range> gaps;
  char32_t begin = 0;
  for (const Range& range : ranges_) {
    if (range.first > begin) {
      gaps.push_back({begin, range.first - 1});
    }
    begin = range.last + 1;
  }
  if (begin <= kLast) {
    gaps.push_back({begin, kLast});
  }
  return CodePoints(gaps);
}

CodePoints CodePoints::unite(const CodePoints& other) const {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePoints(both);
}

CodePoints CodePoints::intersect(const CodePoints& other) const {
  CodePoints common;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const Range overlap = {std::max(a->first, b->first), std::min(a->last, b->last)};
    if (overlap.first <= overlap.last) {
      common.ranges_.push_back(overlap);
    }
    (a->last < b->last ? a : b)++;
  }
  return common;
}

std::u32string to_code_points(std::string_view utf8) {
  std::u32string text;
  text.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const Utf8Scan scan = scan_utf8(utf8.substr(i));
    if (!scan.valid) {
      throw GrammarError(
          fmt::format("the text is not UTF-8 from byte {} on; save it as UTF-8", i + 1));
    }
    text.push_back(decode(utf8.substr(i, scan.bytes)));
    i += scan.bytes;
  }
  return text;
}

std::string to_utf8(std::u32string_view text) {
  std::string utf8;
  utf8.reserve(text.size());
  const auto tail = [&](char32_t c, int shift) {
    utf8.push_back(static_cast<char>(0x80u | (c >> shift & 0x3Fu)));
  };
  for (const char32_t c : text) {
    if (c < 0x80) {
      utf8.push_back(static_cast<char>(c));
    } else if (c < 0x800) {
      utf8.push_back(static_cast<char>(0xC0u | c >> 6));
      tail(c, 0);
    } else if (c < 0x10000) {
      utf8.push_back(static_cast<char>(0xE0u | c >> 12));
      tail(c, 6);
      tail(c, 0);
    } else {
      utf8.push_back(static_cast<char>(0xF0u | c >> 18));
      tail(c, 12);
      tail(c, 6);
      tail(c, 0);
    }
  }
  return utf8;
}

}  // namespace specdec
