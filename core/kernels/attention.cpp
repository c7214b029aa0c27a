#include "core/kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/kernels/attention_operands.h"
#include "core/kernels/attention_task.h"
#include "core/kernels/attention_tiles.h"
#include "core/kernels/checks.h"
#include "core/kernels/hadamard.h"
#include "core/kernels/key_groups.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

/// Multiplications that are worth a second thread.
constexpr int64_t kParallelWork = 200'000;

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/simd/attention_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

/// Memory of one thread; it only grows, so that a decoding step allocates nothing.
template <class T>
struct Scratch {
  std::vector<SeenKeys> seen;
  std::vector<TileRow<T>> rows;
  std::vector<T> scores;
  std::vector<float> weights;    ///< logarithms, of means
  std::vector<int32_t> columns;  ///< numbers of those of means
  RowParts<T> sums, parts;
};

/// Lists what a tile's nodes see, as see(node) says, and their rows with where scores and parts go:
/// those of nodes that see something. `parts` are those of all rows of the tile.
template <class T, class Kv, class Keys, class See>
void list_rows(const Operands<T, Kv>& o, const AttentionTask<T>& task, RowPart<T>* parts,
               const See& see, Scratch<T>& scratch, ChunkTask<T, Keys>& work) {
  work.group = o.group;
  work.head_dim = o.head_dim;
  work.scale = o.scale;
  work.soft_cap = o.soft_cap;
  work.first_slot = std::numeric_limits<int64_t>::max();
  work.end_slot = 0;
  scratch.seen.clear();
  scratch.rows.clear();
  for (int64_t node = task.tile.begin; node < task.tile.end; ++node, parts += o.group) {
    const SeenKeys seen = see(node);
    if (seen.begin >= seen.end) {
      continue;
    }
    scratch.seen.push_back(seen);
    work.first_slot = std::min(work.first_slot, seen.begin);
    work.end_slot = std::max(work.end_slot, work.slot(seen, seen.end - 1) + 1);
    for (int64_t head = 0; head < o.group; ++head) {
      scratch.rows.push_back(
          {o.queries + o.row_offset(node, task.kv_head, head), nullptr, parts + head});
    }
  }
  work.seen = scratch.seen.data();
  work.rows = scratch.rows.data();
  work.nodes = static_cast<int64_t>(scratch.seen.size());
}

/// What a node sees of a chunk of positions, or of the sink.
template <class T, class Kv>
SeenKeys seen_keys(const Operands<T, Kv>& o, const KeyChunk& chunk, int64_t node) {
  SeenKeys seen{0, o.sink_end(node),
                o.path_starts[node] < 0 ? nullptr : o.paths + o.path_starts[node],
                o.bias == nullptr ? nullptr : o.bias + node * o.bias_columns};
  if (chunk.kind != KeyChunk::kSink) {
    const bool exact = chunk.kind == KeyChunk::kExact;
    seen.begin =
        std::max(exact ? o.first_exact(node) : o.first_seen(node), chunk.number * kAttentionChunk);
    seen.end = std::min(exact ? o.positions[node] + 1 : o.first_exact(node),
                        (chunk.number + 1) * kAttentionChunk);
  }
  return seen;
}

/// Task of a chunk of positions, or of the sink, in `pages`.
template <class T, class Kv, class Keys>
ChunkTask<T, Keys> begin_chunk(const Operands<T, Kv>& o, const PagesOf<Keys>& pages,
                               const AttentionTask<T>& task, const KeyChunk& chunk,
                               RowPart<T>* parts, Scratch<T>& scratch) {
  ChunkTask<T, Keys> work;
  work.length = o.lengths[o.rows[task.tile.begin]];
  work.page_table = pages.page_table + o.rows[task.tile.begin] * o.table_stride;
  work.page_size = o.page_size;
  work.page_stride = o.kv_heads * o.page_size * pages.width;
  work.width = pages.width;
  work.keys = pages.keys + task.kv_head * o.page_size * pages.width;
  work.values = pages.values + task.kv_head * o.page_size * pages.width;
  work.key_levels = o.view->key_levels(task.kv_head);
  work.value_levels = o.view->value_levels(task.kv_head);
  work.bias_columns = o.bias_columns;
  const auto see = [&](int64_t node) { return seen_keys(o, chunk, node); };
  list_rows(o, task, parts, see, scratch, work);
  return work;
}

/// Task of the means of old keys: those of a row lie in one page, in their columns. A mean of n
/// keys has the weight of n.
template <class T, class Kv>
ChunkTask<T, T> begin_means(const Operands<T, Kv>& o, const AttentionTask<T>& task,
                            RowPart<T>* parts, Scratch<T>& scratch) {
  static constexpr int32_t kOnlyPage = 0;
  const PooledKeys& pooled = *o.pooled;
  const int64_t place = o.rows[task.tile.begin];
  const int64_t columns = pooled.columns();
  const int64_t head = (place * o.kv_heads + task.kv_head) * columns * o.head_dim;
  scratch.weights.assign(static_cast<size_t>(columns),
                         std::log(static_cast<float>(pooled.pooling().chunk)));
  scratch.columns.resize(static_cast<size_t>(columns));
  std::iota(scratch.columns.begin(), scratch.columns.end(), 0);
  ChunkTask<T, T> work;
  work.length = pooled.pooling().chunks_in(o.lengths[place]);
  work.page_table = &kOnlyPage;
  work.page_size = columns;
  work.page_stride = 0;
  work.width = o.head_dim;
  work.keys = pooled.keys().template const_data_ptr<T>() + head;
  work.values = pooled.values().template const_data_ptr<T>() + head;
  work.bias_columns = columns;
  const auto see = [&](int64_t node) {
    const int64_t means = o.means(node);
    const bool has_own = o.path_starts[node] >= 0 && means > work.length;
    return SeenKeys{0, means, has_own ? scratch.columns.data() + pooled.own_column(node) : nullptr,
                    scratch.weights.data()};
  };
  list_rows(o, task, parts, see, scratch, work);
  return work;
}

template <class T, class Kv>
void run_chunk(ChunkTask<T, Kv> work, Scratch<T>& scratch) {
  if (work.nodes == 0) {
    return;
  }
  work.first_slot -= work.first_slot % work.page_size % kWidest;  // where a vector of keys begins
  const int64_t stride = work.end_slot - work.first_slot + 2 * kWidest;
  const auto needed = scratch.rows.size() * static_cast<size_t>(stride);
  if (scratch.scores.size() < needed) {
    scratch.scores.resize(needed);
  }
  T* scores = scratch.scores.data();
  for (TileRow<T>& row : scratch.rows) {
    row.scores = scores;
    scores += stride;
  }
  SPECDEC_SIMD_CALL(attend_chunk, work);
}

/// A chunk's part of each row of a tile.
template <class T, class Kv>
void attend_chunk(const Operands<T, Kv>& o, const AttentionTask<T>& task, const KeyChunk& chunk,
                  RowPart<T>* parts, Scratch<T>& scratch) {
  if (chunk.kind == KeyChunk::kExact) {
    run_chunk(begin_chunk(o, o.exact, task, chunk, parts, scratch), scratch);
    return;
  }
  if (chunk.kind != KeyChunk::kMeans) {
    run_chunk(begin_chunk(o, o.pages, task, chunk, parts, scratch), scratch);
    return;
  }
  run_chunk(begin_means(o, task, parts, scratch), scratch);
}

template <class T, class Kv>
void add_parts(const Operands<T, Kv>& o, const NodeTile& tile, const RowPart<T>* parts,
               RowPart<T>* sums) {
  for (int64_t r = 0; r < (tile.end - tile.begin) * o.group; ++r) {
    SPECDEC_SIMD_CALL(add_part, parts[r], o.head_dim, sums[r]);
  }
}

template <class T, class Kv>
void finish(const Operands<T, Kv>& o, const AttentionTask<T>& task, const RowPart<T>* sums) {
  for (int64_t node = task.tile.begin; node < task.tile.end; ++node) {
    for (int64_t head = 0; head < o.group; ++head, ++sums) {
      T* row = o.out + o.row_offset(node, task.kv_head, head);
      SPECDEC_SIMD_CALL(finish_row, *sums, o.head_dim, row);
      if (o.rotated) {
        hadamard(row, o.head_dim);
      }
    }
  }
}

template <class T>
Scratch<T>& thread_scratch() {
  thread_local Scratch<T> scratch;
  return scratch;
}

template <class T, class Kv>
void run_task(const Operands<T, Kv>& o, const AttentionTask<T>& task) {
  Scratch<T>& scratch = thread_scratch<T>();
  if (task.parts != nullptr) {
    attend_chunk(o, task, task.chunk, task.parts, scratch);
    return;
  }
  const int64_t rows = (task.tile.end - task.tile.begin) * o.group;
  RowPart<T>* sums = scratch.sums.reset(rows, o.head_dim);
  task.tile.for_each_chunk([&](const KeyChunk& chunk) {
    RowPart<T>* parts = scratch.parts.reset(rows, o.head_dim);
    attend_chunk(o, task, chunk, parts, scratch);
    add_parts(o, task.tile, parts, sums);
  });
  finish(o, task, sums);
}

/// Adds up the parts of chunks that were tasks of their own.
template <class T, class Kv>
void join_chunks(const Operands<T, Kv>& o, const std::vector<AttentionTask<T>>& tasks) {
  RowPart<T>* sums = nullptr;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const NodeTile& tile = tasks[i].tile;
    const auto continues = [&](const AttentionTask<T>& other) {
      return other.tile.begin == tile.begin && other.kv_head == tasks[i].kv_head;
    };
    if (i == 0 || !continues(tasks[i - 1])) {
      sums = thread_scratch<T>().sums.reset((tile.end - tile.begin) * o.group, o.head_dim);
    }
    add_parts(o, tile, tasks[i].parts, sums);
    if (i + 1 == tasks.size() || !continues(tasks[i + 1])) {
      finish(o, tasks[i], sums);
    }
  }
}

/// Number of threads that are worth it.
template <class T, class Kv>
int64_t worthwhile_threads(const Operands<T, Kv>& o) {
  int64_t seen = 0;
  for (int64_t node = 0; node < o.nodes; ++node) {
    seen += o.positions[node] + 1 - o.first_seen(node) + o.sink_end(node) + o.means(node);
  }
  return 2 * seen * o.heads * o.head_dim < kParallelWork ? 1 : at::get_num_threads();
}

template <class T, class Kv>
void run(const Operands<T, Kv>& o) {
  thread_local AttentionTasks<T> list;
  const std::vector<NodeTile>& tiles = cut_tiles(o);
  const int64_t threads = worthwhile_threads(o);
  const auto shares = static_cast<int64_t>(tiles.size()) * o.kv_heads;
  // Few of them are unequal shares where threads do not divide them: 3 heads would take 2 threads
  // as long as 4.
  const bool unequal = shares < threads || (shares < 4 * threads && shares % threads != 0);
  const bool split = unequal && std::any_of(tiles.begin(), tiles.end(),
                                            [](const NodeTile& tile) { return tile.chunks() > 1; });
  cut_tasks(o, tiles, split, list);
  const std::vector<AttentionTask<T>>& tasks = list.tasks;
  const auto run_tasks = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      run_task(o, tasks[static_cast<size_t>(i)]);
    }
  };
  const auto count = static_cast<int64_t>(tasks.size());
  if (threads == 1) {
    run_tasks(0, count);
  } else {
    parallel_tiles(count, 1, run_tasks);
  }
  if (split) {
    join_chunks(o, tasks);
  }
}

void check(const Tensor& queries, const KvView& view, const AttentionOptions& options,
           const Tensor& out) {
  check_cpu(queries);
  SPECDEC_CHECK(view.tables != nullptr && view.values.dim() == 4, "paged_attention: no cache");
  const at::ScalarType dtype = queries.scalar_type();
  SPECDEC_CHECK(is_float_or_double(queries) && is_plain(queries, dtype) && is_plain(out, dtype),
                "paged_attention: queries and out should be contiguous, both float32 or float64");
  const at::ScalarType elements = kv_element_type(view.format, dtype);
  SPECDEC_CHECK(is_plain(view.keys, elements) && is_plain(view.values, elements) &&
                    (view.format == KvFormat::kNative || dtype == at::kFloat),
                "paged_attention: the cache's pages should be {}, contiguous, beside queries of {}",
                c10::toString(elements), c10::toString(dtype));
  SPECDEC_CHECK(view.exact.recent == 0 ||
                    (is_plain(view.exact.keys, dtype) && is_plain(view.exact.values, dtype) &&
                     view.exact.values.size(3) == queries.size(2)),
                "paged_attention: exact pages should be {}, contiguous, as the queries",
                c10::toString(dtype));
  SPECDEC_CHECK(queries.dim() == 3 && queries.size(0) == view.tables->nodes &&
                    queries.size(2) == view.head_dim() && out.numel() == queries.numel(),
                "paged_attention: queries and out should be [{}, heads, {}]", view.tables->nodes,
                view.head_dim());
  SPECDEC_CHECK(view.page_size() % kv_key_group(view.format) == 0 &&
                    view.exact.multiple % kv_key_group(view.format) == 0,
                "paged_attention: {} in pages of {} beside exact ones from a multiple of {}",
                kv_format_name(view.format), view.page_size(), view.exact.multiple);
  SPECDEC_CHECK(view.read == KvRead::kAll || view.format == KvFormat::kHierarchical,
                "paged_attention: upper halves of a cache in {}", kv_format_name(view.format));
  SPECDEC_CHECK(queries.size(1) % view.kv_heads() == 0,
                "paged_attention: {} query heads for {} kv heads", queries.size(1),
                view.kv_heads());
  SPECDEC_CHECK(
      !options.bias.defined() || (is_plain(options.bias, at::kFloat) && options.bias.dim() == 2 &&
                                  options.bias.size(0) == queries.size(0)),
      "paged_attention: the bias should be [{}, columns] float32", queries.size(0));
}

}  // namespace

void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                     Tensor& out) {
  check(queries, view, options, out);
  if (view.pooled != nullptr) {
    PooledKeys::check_bias(options.bias);
    view.pooled->update(view);
  }
  if (queries.scalar_type() == at::kDouble) {
    return run(Operands<double, double>(queries, view, options, out));
  }
  switch (view.format) {
    case KvFormat::kNative:
      return run(Operands<float, float>(queries, view, options, out));
    case KvFormat::kBFloat16:
      return run(Operands<float, at::BFloat16>(queries, view, options, out));
    case KvFormat::kFloat16:
      return run(Operands<float, at::Half>(queries, view, options, out));
    case KvFormat::kFp8E4m3:
      return run(Operands<float, Fp8Code>(queries, view, options, out));
    case KvFormat::kQ8:
      return run(Operands<float, Q8Code>(queries, view, options, out));
    case KvFormat::kQ4:
      return run(Operands<float, Q4Codes>(queries, view, options, out));
    case KvFormat::kQ3:
      return run(Operands<float, Q3Codes>(queries, view, options, out));
    case KvFormat::kHierarchical:
      if (view.read == KvRead::kUpperHalf) {  // they and the scales lie as kQ4's do
        return run(Operands<float, Q4Codes>(queries, view, options, out));
      }
      return run(Operands<float, HalfCodes>(queries, view, options, out));
    case KvFormat::kKivi2:
      return run(Operands<float, Kivi2Codes>(queries, view, options, out));
    case KvFormat::kKivi4:
      return run(Operands<float, Kivi4Codes>(queries, view, options, out));
  }
}

}  // namespace specdec
