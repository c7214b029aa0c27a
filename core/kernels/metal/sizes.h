#pragma once
#include "core/kernels/device/portable.h"

/// What the Metal kernels get beside their arrays, as it lies in memory: written by the host, read
/// by the kernels. All numbers have four bytes; flags are 0 or 1. A flag says whether an array
/// exists, since a kernel gets some array for each that it names.
namespace specdec::mps {

/// Threads of a group, and what a group takes.
enum GroupSizes : int32_t {
  kSimdThreads = 32,      ///< of a SIMD group, on every GPU of Apple's; all groups are whole ones
  kRowThreads = 256,      ///< norms, argmax: a group takes a row
  kElementThreads = 256,  ///< a thread takes an element
  kHeadThreads = 128,     ///< a group takes a head of a token
  kChunkPositions = 128,  ///< of attention: a thread takes a position
  kProductThreads = 128,  ///< of a product of rows with a matrix
  kProductOutputs = 4,    ///< of a group
  kProductRows = 8,       ///< of a group where there are several
  kMaxHeadDim = 512,      ///< of attention
  kChannelThreads = 64,   ///< of recurrent layers: a thread takes a channel
  kGateNodes = 8,         ///< of a group that multiplies with gates
  kGateInputs = 256,      ///< that such a group has in its memory at a time
  kMaxStreams = 8,        ///< residual streams of AltUp
};

struct NormSizes {
  int32_t size;
  float eps;
  int32_t add;  ///< out += the norm
};

struct GatedSizes {
  int32_t rows, size, silu;
};

struct ElementSizes {
  int32_t count;
  float number;  ///< the cap, or the number of streams
};

struct CopySizes {
  int32_t rows, columns, out_stride;
  float factor;
  int32_t scaled;
};

struct ArgmaxSizes {
  int32_t size;
};

/// Sizes of a layer's pages; see KvView.
struct CacheSizes {
  int32_t kv_heads, head_dim, page_size, window, page_stride;
  int32_t width;     ///< elements of a key or value
  int32_t hadamard;  ///< keys, queries and values are multiplied; see core/kernels/hadamard.h
};

struct QkvSizes {
  CacheSizes cache;
  int32_t heads, kv_projections;
  float eps;
  int32_t query_norm, key_norm, value_norm;
};

struct AttentionSizes {
  CacheSizes cache;
  int32_t heads, chunks;
  int32_t bias_columns;  ///< 0 = no bias
  float scale, soft_cap;
};

/// What the codes of a format stand for; zeros in formats without a codebook.
struct CodebookNumbers {
  float numbers[16];
};

struct LinearSizes {
  int32_t rows, in, outputs, out_stride, biased;
  CodebookNumbers codebook;
};

struct EmbedSizes {
  int32_t in;
  float factor;
  CodebookNumbers codebook;
};

struct RouteSizes {
  int32_t count, chosen;
};

struct ExpertSizes {
  int32_t in, outputs, count;
  int32_t rows_share;  ///< pairs of a row of the input
  CodebookNumbers codebook;
};

struct ExpertSumSizes {
  int32_t rows, chosen, size;
};

struct CutSizes {
  int32_t size;
  float deviations;
};

struct PerLayerSizes {
  int32_t rows, layers, size;
  float eps, context_scale;
};

/// Sizes of a recurrent layer and `count` nodes.
struct RecurrenceSizes {
  int32_t count, channels;
  int32_t width;   ///< tokens that the convolution reads
  int32_t blocks;  ///< of the gates
  int32_t state_stride;
};

/// Sizes of streams [count, rows, size]; for the router, `count` is the number of its outputs.
struct StreamSizes {
  int32_t count, rows, size;
  int32_t active;
  float eps;
};

}  // namespace specdec::mps
