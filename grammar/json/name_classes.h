#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "grammar/schema/formula.h"

namespace specdec {

/// Names that lie in the same ones of some languages.
struct NameClass {
  RegexId language = RegexStore::kNothing;
  std::vector<uint32_t> inside;  ///< which of the languages, ascending
  std::vector<NameId> names;     ///< all of them where they are few, else none
};

/// All names, split by languages that tell them apart; once for each list of languages.
class NameClasses {
 public:
  struct Language {
    RegexId id = RegexStore::kNothing;
    bool allowed = true;                                ///< else its names belong to no class
    auto operator<=>(const Language&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  static constexpr size_t kMax = 256;

  explicit NameClasses(FormulaStore& formulas) : formulas_(formulas) {}

  /// The classes, none of which is empty; nullptr when there would be more than kMax. No language
  /// comes twice. The answer stays where it is.
  const std::vector<NameClass>* split(const std::vector<Language>& languages);

 private:
  struct Part;

  /// The names of a part that are in the language too.
  void enter(Part& part, RegexId language);
  bool apart(RegexId a, RegexId b);
  std::optional<std::vector<NameClass>> find(const std::vector<Language>& languages);

  FormulaStore& formulas_;
  std::map<std::vector<Language>, std::optional<std::vector<NameClass>>> known_;
};

}  // namespace specdec
