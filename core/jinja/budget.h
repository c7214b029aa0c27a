#pragma once
#include <fmt/format.h>

#include <cstddef>

#include "core/error.h"

namespace specdec {

/// What one rendering may use, in bytes: of the texts and values that it makes or reads; a step
/// counts as kStep of them. It bounds memory and time.
class JinjaBudget {
 public:
  static constexpr size_t kMax = size_t{1} << 28U;
  static constexpr size_t kStep = 512;
  static constexpr size_t kValue = 128;     ///< a part of a list, which may be a short text
  static constexpr size_t kCharacter = 10;  ///< of a text that is read by characters

  /// Throws Error where more is wanted than is left.
  void take(size_t count, size_t bytes = 1) {
    if (count > left_ / bytes) {
      throw Error(
          fmt::format("the template takes more than {} MB to render (a step counts as {} bytes).",
                      kMax >> 20U, kStep));
    }
    left_ -= count * bytes;
  }

 private:
  size_t left_ = kMax;
};

}  // namespace specdec
