#pragma once
#include <cstdint>
#include <string>

#include "core/error.h"

namespace specdec {

/// What a key/value cache holds, and what new tokens need.
struct CacheRoom {
  std::string holds;       ///< "10 pages of 16 tokens"
  std::string advice;      ///< what to change: "raise the cache's limit (max_pages or megabytes)"
  int64_t needed = 0;      ///< pages, or rows
  int64_t page_size = 0;   ///< tokens of a page; 0 where more tokens of a row need no more
  int64_t page_bytes = 0;  ///< of a page in all layers; 0 = bytes are not stated
};

/// A key/value cache has no room for new tokens: nothing has changed.
class CacheRoomError final : public Error {
 public:
  explicit CacheRoomError(const CacheRoom& room);

  /// This error for a text of `whole` tokens that is read in pieces: for the piece that ends at
  /// token `end`.
  CacheRoomError of_text(int64_t end, int64_t whole) const;

 private:
  CacheRoom room_;
};

}  // namespace specdec
