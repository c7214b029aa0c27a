#include "grammar/masks/letters.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace specdec {
namespace {

/// The letters all of whose characters are in the set.
Letters letters_in(const CodePoints& points) {
  constexpr std::array<CodePoints::Range, 3> kOthers = {
      {{0x80, 0x2027}, {0x202A, 0xD7FF}, {0xE000, CodePoints::kLast}}};
  Letters letters;
  for (char32_t c = 0; c < 0x80; ++c) {
    letters.ascii[c] = points.contains(c);
  }
  letters.separators = points.contains(0x2028) && points.contains(0x2029);
  letters.others =
      std::all_of(kOthers.begin(), kOthers.end(), [&](const CodePoints::Range& wanted) {
        return std::any_of(points.ranges().begin(), points.ranges().end(),
                           [&](const CodePoints::Range& range) {
                             return range.first <= wanted.first && wanted.last <= range.last;
                           });
      });
  return letters;
}

}  // namespace

std::optional<Letters> LanguageLetters::find_never(RegexId language) {
  constexpr size_t kMaxStates = 64;
  std::vector<RegexId> reached = {language};
  std::optional<Letters> result;
  for (size_t i = 0; i < reached.size(); ++i) {
    Letters dead;
    bool some_live = false;
    char32_t first = 0;
    for (const RegexStore::Transition& part : regexes_.transitions(reached[i])) {
      const bool live = part.target != RegexStore::kNothing;
      if (live && std::find(reached.begin(), reached.end(), part.target) == reached.end()) {
        reached.push_back(part.target);
      }
      for (char32_t c = first; !live && c < 0x80 && c <= part.last; ++c) {
        dead.ascii.set(c);
      }
      const bool separators = first <= 0x2028 && part.last >= 0x2029;
      const bool surrogates = first >= 0xD800 && part.last <= 0xDFFF;
      const bool split = (first == 0x2028 || first == 0x2029) && part.last <= 0x2029;
      dead.separators |= !live && (separators || split);
      const bool others = part.last >= 0x80 && !surrogates && !split;
      dead.others |= !live && others;
      some_live |= live && others;
      first = part.last + 1;
    }
    const bool mixed = dead.others && some_live;
    const bool differs = result && (result->ascii != dead.ascii || result->others != dead.others ||
                                    result->separators != dead.separators);
    if (mixed || differs || reached.size() > kMaxStates) {
      return std::nullopt;
    }
    result = dead;
  }
  return result;
}

const std::optional<Letters>& LanguageLetters::never(RegexId language) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = never_.find(language); found != never_.end()) {
      return found->second;
    }
  }
  const auto made = language == RegexStore::kNothing ? std::nullopt : find_never(language);
  const std::lock_guard lock(mutex_);
  return never_.try_emplace(language, made).first->second;
}

/// Letters that lead to the same language as most letters do, and do so again there, and so on.
Letters LanguageLetters::find_always(RegexId language, uint32_t longest) {
  Letters result;
  result.ascii.set();
  result.separators = result.others = true;
  for (uint32_t step = 0; step < longest && language != RegexStore::kNothing; ++step) {
    std::map<RegexId, Letters> by_target;
    bool others_alike = true;
    char32_t first = 0;
    RegexId others = RegexStore::kNothing;
    for (const RegexStore::Transition& part : regexes_.transitions(language)) {
      Letters& letters = by_target[part.target];
      for (char32_t c = first; c < 0x80 && c <= part.last; ++c) {
        letters.ascii.set(c);
      }
      letters.separators |= first <= 0x2028 && part.last >= 0x2029;
      const bool apart = part.last == 0xDFFF || (first >= 0x2028 && part.last <= 0x2029);
      if (part.last >= 0x80 && !apart) {
        others_alike &= others == RegexStore::kNothing || others == part.target;
        others = part.target;
        others_alike &= others != RegexStore::kNothing;
      }
      first = part.last + 1;
    }
    if (others_alike && others != RegexStore::kNothing) {
      by_target[others].others = true;
    }
    by_target.erase(RegexStore::kNothing);
    const auto most =
        std::max_element(by_target.begin(), by_target.end(), [](const auto& a, const auto& b) {
          return a.second.ascii.count() < b.second.ascii.count();
        });
    if (most == by_target.end()) {
      return {};
    }
    result.ascii &= most->second.ascii;
    result.separators &= most->second.separators;
    result.others &= most->second.others;
    if (most->first == language) {
      return result;
    }
    language = most->first;
  }
  return result;
}

const Letters& LanguageLetters::always(RegexId language, uint32_t longest) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = always_.find(language); found != always_.end()) {
      return found->second;
    }
  }
  const Letters chain = find_always(language, longest);
  const Letters loop = letters_in(regexes_.loop_of(language));
  const bool loops = loop.ascii.count() > chain.ascii.count();
  const std::lock_guard lock(mutex_);
  return always_.try_emplace(language, loops ? loop : chain).first->second;
}

}  // namespace specdec
