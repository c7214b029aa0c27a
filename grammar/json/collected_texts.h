#pragma once
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace specdec {

/// Texts of values that were found, each once, up to a number of them.
struct CollectedTexts {
  uint64_t most = 0;
  int depth = 0;     ///< that values may have
  bool cut = false;  ///< there may be deeper ones
  std::vector<std::string> texts = {};
  std::unordered_set<std::string> known = {};

  bool full() const { return texts.size() >= most; }
  void add(std::string text) {
    if (!full() && known.insert(text).second) {
      texts.push_back(std::move(text));
    }
  }
};

}  // namespace specdec
