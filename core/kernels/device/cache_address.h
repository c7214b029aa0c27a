#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

/// First position that a node sees; window 0 = all. Those before it are hidden.
SPECDEC_DEVICE int32_t first_seen(int32_t position, int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

/// Whether a node at `position` sees the key at position `key`: one of its window, or of the first
/// `sink` positions.
SPECDEC_DEVICE bool sees(int32_t position, int32_t key, int32_t window, int32_t sink) {
  return key <= position && (key < sink || key >= first_seen(position, window));
}

/// Chunks of `chunk` tokens behind the first `sink` ones that lie among the first `tokens`.
template <class Int>
SPECDEC_DEVICE Int chunks_in(Int tokens, Int chunk, Int sink) {
  return tokens > sink ? (tokens - sink) / chunk : 0;
}

/// Chunks that a node at `position` sees as their means: those that end before its last `recent`
/// tokens begin, itself among them.
template <class Int>
SPECDEC_DEVICE Int means_at(Int position, Int chunk, Int recent, Int sink) {
  return chunks_in(position - recent + 1, chunk, sink);
}

/// Slot of the key that a node sees at a position: those of its pending ancestors, from position
/// `length` on, are listed in its path, which begins at paths[path_start]; path_start -1: the slot
/// is the position.
template <class Paths>
SPECDEC_DEVICE int32_t slot_at(int32_t position, int32_t length, int32_t path_start, Paths paths) {
  return path_start >= 0 && position >= length ? paths[path_start + position - length] : position;
}

/// Sizes of a page of keys or values; see KvView. `width`: elements of a key or value.
struct PageShape {
  int32_t kv_heads, width, page_size;
};

/// Where element 0 of a key lies; the next one is page_size elements further.
SPECDEC_DEVICE int64_t key_offset(PageShape shape, int32_t page, int32_t kv_head, int32_t in_page) {
  return (static_cast<int64_t>(page) * shape.kv_heads + kv_head) * shape.width * shape.page_size +
         in_page;
}

/// Where element 0 of a value lies; the next one follows it.
SPECDEC_DEVICE int64_t value_offset(PageShape shape, int32_t page, int32_t kv_head,
                                    int32_t in_page) {
  return ((static_cast<int64_t>(page) * shape.kv_heads + kv_head) * shape.page_size + in_page) *
         shape.width;
}

}  // namespace specdec::portable
