#include "core/cache_room_error.h"

#include <fmt/format.h>

namespace specdec {
namespace {

std::string room_text(const CacheRoom& room) {
  constexpr int64_t kMebibyte = int64_t{1} << 20U;
  const int64_t bytes = room.needed * room.page_bytes;
  const std::string size =
      bytes == 0 ? "" : fmt::format(" ({} MiB)", (bytes + kMebibyte - 1) / kMebibyte);
  return fmt::format("the key/value cache holds {}, not {}{}: {}", room.holds, room.needed, size,
                     room.advice);
}

int64_t pages_of(int64_t tokens, int64_t page_size) { return (tokens + page_size - 1) / page_size; }

}  // namespace

CacheRoomError::CacheRoomError(const CacheRoom& room) : Error(room_text(room)), room_(room) {}

CacheRoomError CacheRoomError::of_text(int64_t end, int64_t whole) const {
  CacheRoom room = room_;
  if (room.page_size > 0) {
    room.needed += pages_of(whole, room.page_size) - pages_of(end, room.page_size);
  }
  return CacheRoomError(room);
}

}  // namespace specdec
