#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/kv_store.h"

namespace specdec {

class CopyQueue;
class TierPolicy;

/// Which states of recurrent layers are kept beside those of pending nodes and last tokens, and how
/// many there may be.
struct StateOptions {
  int64_t every = 64;             ///< tokens between checkpoints
  int64_t most_checkpoints = 16;  ///< of a row, the newest ones
  /// Most bytes of all states. 0 = those of the nodes of a prompt's piece, and of as many rows as
  /// max_pages = 0 has pages for.
  int64_t max_bytes = 0;
};

struct KvCacheOptions {
  at::ScalarType dtype = at::kFloat;  ///< dtype of the activations
  KvFormat format = KvFormat::kNative;
  KvRotation rotation = KvRotation::kNone;  ///< of formats with scales
  at::Device device = at::kCPU;
  int64_t page_size = 16;  ///< tokens a page
  int64_t max_length = 0;  ///< most tokens of a row, kept and pending together
  /// 0 = every row keeps all its tokens in all layers. Else layers form a group for each distinct
  /// window, with a page table and page numbers of its own, and a group with a window gives a page
  /// back once its last token lies more than window + window_slack behind a row's kept tokens: a
  /// row can be truncated by window_slack tokens then, or to 0. At least the largest draft + 1.
  int64_t window_slack = 0;
  /// A key or value at position p is read in the activations' dtype from q when q - p <
  /// exact_recent, else as `format`, which is not kNative, rounds it. Both forms are written. The
  /// exact ones are a group more, of all layers, which gives pages back as one with this window
  /// does; its slack is window_slack, or kExactSlack where that is 0. On the CPU and CUDA; 0 =
  /// there are none. A format with groups of keys (kv_key_group) needs at least a group, and reads
  /// as many more in this form as make its beginning a group's; page_size is a multiple of the
  /// group then.
  int64_t exact_recent = 0;
  /// Most pages of a layer with own keys (windowed_pages() of one with a window). 0 = as many as
  /// max_length tokens of max_rows rows take, where max_rows is 0 too: of one row where pages are
  /// allocated at once, else of 4096 rows, but no more than a terabyte of address space holds.
  int64_t max_pages = 0;
  int64_t max_bytes = 0;    ///< most bytes of the pages of all layers; 0 = any number
  int64_t max_rows = 0;     ///< most rows at a time; 0 = any number
  int64_t max_pending = 0;  ///< most pending nodes of a row; 0 = max_length
  /// Most bytes of pages in memory, that of a GPU where it computes; others lie in a file without a
  /// name in `disk`, which has room for all pages from the beginning. 0 = all lie in memory. On the
  /// CPU and CUDA.
  int64_t memory_bytes = 0;
  /// Bytes of the host's pinned memory for pages that a GPU has no memory for, before they go to
  /// the file; at least a few blocks.
  int64_t host_bytes = 0;
  std::filesystem::path disk = {};  ///< a folder; "" = the system's for temporary files
  /// What leaves memory_bytes first; nullptr = least_recently_used().
  std::shared_ptr<const TierPolicy> tier_policy = nullptr;
  /// Share of memory_bytes that pages of idle rows leave free after each commit (RowTiers), 0 to 1.
  double keep_free = 0.0;
  StateOptions states = {};  ///< of models with recurrent layers
  /// The CPU is treated as a device: kernels read a copy of the tables, and pages are copied by
  /// ATen (for tests).
  bool as_device = false;
  /// What copies pages to and from the device that memory_bytes limits; nullptr = device_copies().
  std::shared_ptr<CopyQueue> copies = nullptr;
};

/// Tokens that a row can be truncated by where window_slack does not say it.
constexpr int64_t kExactSlack = 64;
/// exact_recent of a format with groups of keys where nothing else is said (KIVI).
constexpr int64_t kGroupedRecent = 128;

/// Bytes of a layer's page of keys and values; 0 for a layer that reads another's.
int64_t page_bytes(const LayerKv& layer, const KvCacheOptions& options);
/// Pages of a layer with a window, where one that sees everything has `pages`: as many, or with
/// window_slack as many as such rows take that are fed in pieces of kPrefillTokens or max_pending.
int64_t windowed_pages(int64_t window, int64_t pages, const KvCacheOptions& options);
/// Pages that a layer of these holds at most which sees everything; others hold windowed_pages().
/// Throws Error where max_bytes are less than a page.
int64_t page_capacity(const std::vector<LayerKv>& layers, const KvCacheOptions& options);
/// States of recurrent layers that a cache holds at most, each of so many bytes.
int64_t state_capacity(int64_t state_bytes, const KvCacheOptions& options);
/// Last tokens that a token may read in exact pages: of a format with groups of keys up to a group
/// less one more than exact_recent.
int64_t exact_window(const KvCacheOptions& options);
/// The layers and options of the exact pages of a cache with exact_recent, as a pool of their own
/// has them.
std::vector<LayerKv> exact_layers(std::vector<LayerKv> layers, const KvCacheOptions& options);
KvCacheOptions exact_options(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

}  // namespace specdec
