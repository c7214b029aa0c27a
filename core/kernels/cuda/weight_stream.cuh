#pragma once
// The weights that a warp multiplies on tensor cores, as it reads them: chunk after chunk, some of
// them ahead.
#include "core/kernels/cuda/fragments.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace specdec::cuda {

/// Where a lane's weights of a warp's first tile and a chunk lie; those of its next tile are a
/// stride further.
struct WeightAddress {
  const unsigned char* fragments;
  const uint32_t* scales;
  int64_t fragment_stride, scale_stride;
};

/// What a lane holds of a chunk of a tile.
template <class Format>
struct WeightChunk {
  WeightFragment fragments[Format::kFragments + (Format::kMoreWords > 0 ? 1 : 0)];
  uint32_t scales[Format::kScaleWords > 0 ? 2 * Format::kScaleWords : 1];
};

template <class Format>
__device__ inline WeightChunk<Format> read_chunk(const WeightAddress& address, int tile) {
  WeightChunk<Format> chunk;
  const auto* fragments =
      reinterpret_cast<const WeightFragment*>(address.fragments + tile * address.fragment_stride);
#pragma unroll
  for (int f = 0; f < Format::kFragments; ++f) {
    load_once(fragments + f * kWarp, chunk.fragments[f].word);
  }
  if constexpr (Format::kMoreWords > 0) {
    const auto lane = static_cast<int>(lane_index());
    read_more_words<Format::kMoreWords>(fragments - lane + Format::kFragments * kWarp, lane,
                                        chunk.fragments[Format::kFragments].word);
  }
  if constexpr (Format::kScaleWords > 0) {
    using Scales = LaneWords<2 * Format::kScaleWords>;
    const auto scales = load_aligned<Scales>(address.scales + tile * address.scale_stride);
#pragma unroll
    for (int i = 0; i < 2 * Format::kScaleWords; ++i) {
      chunk.scales[i] = scales.word[i];
    }
  }
  return chunk;
}

/// Where a lane's weights of a tile's first chunk lie, in a matrix [outputs, in].
template <class Format>
__device__ inline WeightAddress first_weights(const void* matrix, int32_t outputs, int32_t in,
                                              int32_t tile) {
  const auto* fragments = static_cast<const unsigned char*>(matrix);
  const int64_t first = static_cast<int64_t>(tile) * chunks_of(in);
  const auto lane = static_cast<int64_t>(lane_index());
  const auto* scales =
      reinterpret_cast<const uint32_t*>(fragments + scales_offset<Format>(outputs, in));
  return {fragments + first * kChunkBytes<Format> + lane * sizeof(WeightFragment),
          scales + first * kChunkScaleWords<Format> + lane / 4 * 2 * Format::kScaleWords,
          static_cast<int64_t>(chunks_of(in)) * kChunkBytes<Format>,
          static_cast<int64_t>(chunks_of(in)) * kChunkScaleWords<Format>};
}

/// The chunks that a warp takes: each kTensorWarps-th one from `first` on, below `end`.
struct ChunkRange {
  int32_t first, end;
};

/// The weights of the chunks that a warp takes, one after the other, for its tiles of outputs. They
/// are read kAhead chunks before they are multiplied, the first ones at once. Each stays in the
/// registers that it was read to: the loop is unrolled for as many as there are.
template <class Format, int kOutputTiles, int kAhead>
class WeightStream {
 public:
  __device__ WeightStream(const WeightAddress& first, const ChunkRange& range)
      : first_(first), chunks_(range.end), chunk_(range.first) {
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      read(ahead, ahead);
    }
  }

  /// Calls use(chunk, weights) for each of them.
  template <class Use>
  __device__ void for_each(const Use& use) {
    while (use_from<0>(use)) {
    }
  }

 private:
  /// Uses the chunks from number i of those that are kept on. False where none is left.
  template <int i, class Use>
  __device__ bool use_from(const Use& use) {
    if constexpr (i <= kAhead) {
      if (chunk_ >= chunks_) {
        return false;
      }
      read((i + kAhead) % (kAhead + 1), kAhead);
      use(chunk_, read_[i]);
      chunk_ += kTensorWarps;
      return use_from<i + 1>(use);
    }
    return true;
  }

  /// Reads the weights of the chunk that comes `ahead` chunks of the warp later, as number i.
  __device__ void read(int i, int ahead) {
    const int64_t chunk = chunk_ + ahead * kTensorWarps;
    if (chunk >= chunks_) {
      return;
    }
    WeightAddress address = first_;
    address.fragments += chunk * kChunkBytes<Format>;
    address.scales += chunk * kChunkScaleWords<Format>;
#pragma unroll
    for (int o = 0; o < kOutputTiles; ++o) {
      read_[i][o] = read_chunk<Format>(address, o);
    }
  }

  WeightAddress first_;
  int32_t chunks_, chunk_;
  WeightChunk<Format> read_[kAhead + 1][kOutputTiles];
};

/// Words that a lane holds of a chunk of a warp's tiles of outputs.
template <class Format, int kOutputTiles>
constexpr int kChunkWords = kOutputTiles* static_cast<int>(sizeof(WeightChunk<Format>) /
                                                           sizeof(uint32_t));

/// Chunks that are read ahead: some 128 bytes a lane, at least one and at most four, or two where
/// weights of three parts take the registers. Of several tiles of rows none: their sums take them.
template <class Format, int kOutputTiles, int kTiles>
constexpr int kChunksAhead = kTiles > 1                                                     ? 0
                             : kChunkWords<Format, kOutputTiles> > 16                       ? 1
                             : kChunkWords<Format, kOutputTiles> > 10 || Format::kParts > 2 ? 2
                             : kChunkWords<Format, kOutputTiles> > 8                        ? 3
                                                                                            : 4;

}  // namespace specdec::cuda
