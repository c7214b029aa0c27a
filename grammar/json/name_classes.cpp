#include "grammar/json/name_classes.h"

#include <algorithm>
#include <utility>

namespace specdec {
namespace {

constexpr uint64_t kMaxListed = 64;  ///< a finite class of names up to this size is told as names

}  // namespace

struct NameClasses::Part {
  NameClass names;
  std::vector<RegexId> inside;
  std::vector<RegexId> outside;  ///< without those apart from one of `inside`
};

bool NameClasses::apart(RegexId a, RegexId b) {
  RegexStore& regexes = formulas_.regexes();
  return regexes.is_nothing(regexes.all_of(a, b));
}

void NameClasses::enter(Part& part, RegexId language) {
  RegexStore& regexes = formulas_.regexes();
  const size_t before = part.outside.size();
  std::erase_if(part.outside, [&](RegexId other) { return apart(language, other); });
  part.inside.push_back(language);
  std::vector<RegexId> all = {part.names.language, language};
  if (part.outside.size() != before) {  // a shorter way to say the same
    all = part.inside;
    for (const RegexId other : part.outside) {
      all.push_back(regexes.complement(other));
    }
  }
  part.names.language = regexes.all_of(all);
}

const std::vector<NameClass>* NameClasses::split(const std::vector<Language>& languages) {
  auto known = known_.find(languages);
  if (known == known_.end()) {
    known = known_.emplace(languages, find(languages)).first;
  }
  return known->second ? &*known->second : nullptr;
}

std::optional<std::vector<NameClass>> NameClasses::find(const std::vector<Language>& languages) {
  RegexStore& regexes = formulas_.regexes();
  std::vector<Part> parts(1);
  parts[0].names.language = RegexStore::kAll;
  for (uint32_t i = 0; i < languages.size(); ++i) {
    const RegexId language = languages[i].id;
    std::vector<Part> next;
    for (Part& part : parts) {
      Part inside = part;
      const bool none = std::any_of(part.inside.begin(), part.inside.end(),
                                    [&](RegexId one) { return apart(one, language); });
      if (!none) {
        enter(inside, language);
      }
      if (none || regexes.is_nothing(inside.names.language)) {
        next.push_back(std::move(part));
        continue;
      }
      if (languages[i].allowed) {
        inside.names.inside.push_back(i);
        next.push_back(std::move(inside));
      }
      RegexId& rest = part.names.language;
      rest = regexes.all_of(rest, regexes.complement(language));
      if (!regexes.is_nothing(rest)) {
        part.outside.push_back(language);
        next.push_back(std::move(part));
      }
    }
    parts = std::move(next);
    if (parts.size() > kMax) {
      return std::nullopt;
    }
  }
  std::vector<NameClass> classes;
  for (Part& part : parts) {
    NameClass& found = classes.emplace_back(std::move(part.names));
    if (regexes.is_finite(found.language) &&
        regexes.count(found.language, kMaxListed + 1) <= kMaxListed) {
      for (const std::u32string& word : regexes.list(found.language, kMaxListed)) {
        found.names.push_back(formulas_.name(to_utf8(word)));
      }
    }
  }
  return classes;
}

}  // namespace specdec
