#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace specdec {

/// How many of the texts are different.
inline size_t count_texts(const std::vector<std::string>& texts) {
  return std::unordered_set<std::string_view>(texts.begin(), texts.end()).size();
}

/// Lists more until as many as are wanted are different by `count`, or all are listed.
template <class List, class Count>
std::vector<std::string> list_different(uint64_t wanted, const List& list, const Count& count) {
  for (uint64_t listed = wanted;; listed *= 2) {
    std::vector<std::string> texts = list(listed);
    if (texts.size() < listed || count(texts) >= wanted) {
      return texts;
    }
  }
}

}  // namespace specdec
