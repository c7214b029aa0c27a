#pragma once
#include <cstdint>

#include "core/kernels/kv_view.h"

namespace specdec {

// Codes between two numbers, as KvFormat::kKivi2 and kKivi4 have them (KIVI: Liu et al., 2024,
// arXiv:2402.02750; core/kernels/device/stored_kv.h). A group of numbers from `least` to `most` has
// the step (most - least) / (2^bits - 1); least and step are rounded to float16, and the code of x
// is (x - least) / step, rounded to the nearest integer of those bits, ties to even. A code means
// least + code * step.
//
// Values are rounded by token: kKvGroup dimensions are a group, and behind a value's codes lie the
// two numbers of each group, low bytes first.
//
// Keys are rounded by channel: each dimension of kKeyGroup tokens, from a position that is a
// multiple of that on, is a group. Their columns of a page of keys are the tokens' own, so that
// copies of tokens that keep whole groups keep what they mean. The rows hold first the codes, those
// of neighbouring dimensions of a token in a byte, and then, of 16 dimensions each, `least` and
// behind all of these the steps: the number of dimension d in the bytes of columns 2 (d % 16) and
// 2 (d % 16) + 1.

/// Dimensions that a head has to be a multiple of.
constexpr int64_t kKiviMultiple = 8;
/// Dimensions whose numbers lie in a row.
constexpr int64_t kRangesOfRow = kKeyGroup / 2;

/// Rounds and writes a head of values; see encode_kv.
void encode_ranged_value(KvFormat format, const float* numbers, int64_t head_dim,
                         const KvElements& to);
void decode_ranged_value(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers);

/// A head of a group of keys in a page, or in a copy: element i of token t lies at
/// i * stride + t * token_stride.
struct KeyGroup {
  uint8_t* data;
  int64_t stride;
  int64_t token_stride = 1;
};

/// Rounds and writes a group; number d of token t is keys[d * stride + t].
void encode_key_group(KvFormat format, const float* keys, int64_t stride, int64_t head_dim,
                      const KeyGroup& to);
/// Reads a token of a group.
void decode_key_of_group(KvFormat format, const KeyGroup& from, int64_t token, int64_t head_dim,
                         float* numbers);

/// Rounds the groups of keys that nodes of the tables complete, of all heads, out of the exact
/// pages: those whose last token is a node that, like all pending ones before it, lies at the slot
/// of its position. The bytes are the same each time.
void round_keys(const KvView& view);

}  // namespace specdec
