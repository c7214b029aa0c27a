#pragma once
#include <bitset>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "grammar/regex/code_points.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// A set of characters, told roughly: each of ASCII, the line separators U+2028 and U+2029, all
/// others together.
struct Letters {
  std::bitset<128> ascii;
  bool separators = false;
  bool others = false;
  bool unclear = false;  ///< unfinished escapes
};

/// Which letters languages go on with, each found out once. For any number of threads: what is
/// known stays at its address, and the lock is not held while something is found out.
class LanguageLetters {
 public:
  /// Borrows the languages.
  explicit LanguageLetters(RegexStore& regexes) : regexes_(regexes) {}

  /// The letters after which nothing of the language goes on, when these are the same all the way
  /// through it: then a text goes on exactly if it holds none of them.
  const std::optional<Letters>& never(RegexId language);
  /// Letters that go on and on: no text of these, of at most `longest` characters, leaves the
  /// language.
  const Letters& always(RegexId language, uint32_t longest);
  uint64_t bytes() const {
    constexpr uint64_t kPlace = sizeof(std::pair<RegexId, std::optional<Letters>>) + 32;
    const std::lock_guard lock(mutex_);
    return (never_.size() + always_.size()) * kPlace;
  }

 private:
  std::optional<Letters> find_never(RegexId language);
  Letters find_always(RegexId language, uint32_t longest);

  RegexStore& regexes_;
  mutable std::mutex mutex_;
  std::unordered_map<RegexId, std::optional<Letters>> never_;
  std::unordered_map<RegexId, Letters> always_;
};

}  // namespace specdec
