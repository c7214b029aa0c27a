#include "kv/forward_tables.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {

ForwardTables::ForwardTables(const CacheRows& rows, const PageGroups& groups)
    : rows_(rows), groups_(groups), row_tables_(rows, groups), block_(row_tables_.options()) {}

void ForwardTables::reserve(const NewNodes& nodes) {
  int64_t pages = 0;
  for (const CacheRows::Span& span : rows_.spans()) {
    pages = std::max({pages, rows_.page_range(span).end, row_tables_.most_pages(span.row)});
  }
  block_.reserve({.nodes = nodes.count,
                  .paths = std::max<int64_t>(1, path_slots(nodes)),
                  .rows = rows_.places(),
                  .pages = pages});
}

/// Slots in the paths of new nodes: a node has one unless all the row's pending nodes up to
/// it are a chain.
int64_t ForwardTables::path_slots(const NewNodes& nodes) {
  int64_t slots = 0;
  for (const CacheRows::Span& span : rows_.spans()) {
    const CacheRows::Row& row = rows_[span.row];
    const int64_t held = std::ssize(row.pending);
    const auto parent_at = [&](int64_t index) {
      return index < held ? row.pending[static_cast<size_t>(index)].parent
                          : CacheRows::parent_of(nodes, span.begin + index - held, index);
    };
    depths_.clear();
    for (const CacheRows::Node& node : row.pending) {
      depths_.push_back(node.position - row.length);
    }
    for (int64_t node = span.begin; node < span.end; ++node) {
      const auto index = static_cast<int64_t>(depths_.size());
      const int64_t parent = CacheRows::parent_of(nodes, node, index);
      const int64_t depth = parent < 0 ? 0 : depths_[static_cast<size_t>(parent)] + 1;
      depths_.push_back(depth);
      if (depth != index) {
        int64_t above = parent;  // the last one at the slot of its position
        while (above >= 0 && depths_[static_cast<size_t>(above)] != above) {
          above = parent_at(above);
        }
        check_branch(row.length + above + 1, depth - above);
        slots += depth + 1;
      }
    }
  }
  return slots;
}

/// Throws Error where a node, at a slot that is not its position's, would read a group of keys that
/// branches have in common no more: it is the last of `depth` tokens behind `shared` ones of its
/// row, kept or pending, that lie at the slots of their positions. Groups that end there are
/// rounded by the forward of their last token, or are kept.
void ForwardTables::check_branch(int64_t shared, int64_t depth) const {
  const KvCacheOptions& options = groups_.options();
  ExactPages form;
  form.recent = options.exact_recent;
  form.multiple = kv_key_group(options.format);
  if (form.multiple > 1 && form.first_at(shared + depth - 1) > shared) {
    throw Error(fmt::format(
        "a branch of a draft tree is {} tokens deep, behind those that branches have in common, "
        "and a key/value cache in {} with exact_recent {} rounds the keys of {} tokens together "
        "that follow each other in all branches: draft a tree of at most {} levels (beams: a "
        "draft_length of as many) or a chain without beams, or raise exact_recent",
        depth, kv_format_name(options.format), options.exact_recent, form.multiple,
        options.exact_recent - 1));
  }
}

void ForwardTables::write(const NewNodes& nodes) {
  path_end_ = 0;
  int64_t longest = 0;
  for (const CacheRows::Span& span : rows_.spans()) {
    const int64_t first = rows_.pending(span.row) - (span.end - span.begin);
    for (int64_t i = span.begin; i < span.end; ++i) {
      write_node(span, i, first + i - span.begin);
    }
    row_tables_.write(block_.host(), span.place, span.row);
    longest = std::max(longest, rows_.held(span.row));
  }
  std::copy(nodes.tokens.begin(), nodes.tokens.end(), table_entries(block_.host().tokens));
  block_.upload(nodes.count, longest);
}

/// Writes new node number `index`, which is pending node number `node` of its row.
void ForwardTables::write_node(const CacheRows::Span& span, int64_t index, int64_t node) {
  const CacheRows::Row& owner = rows_[span.row];
  const int64_t position = owner.pending[static_cast<size_t>(node)].position;
  const BatchTables& tables = block_.host();
  table_entries(tables.rows)[index] = static_cast<int32_t>(span.place);
  table_entries(tables.slots)[index] = static_cast<int32_t>(owner.length + node);
  table_entries(tables.positions)[index] = static_cast<int32_t>(position);
  if (position == owner.length + node) {
    table_entries(tables.path_starts)[index] = -1;
    return;
  }
  table_entries(tables.path_starts)[index] = static_cast<int32_t>(path_end_);
  path_end_ += position - owner.length + 1;
  int32_t* slot = table_entries(tables.paths) + path_end_;
  for (int64_t above = node; above >= 0; above = owner.pending[static_cast<size_t>(above)].parent) {
    *--slot = static_cast<int32_t>(owner.length + above);
  }
}

void ForwardTables::number(int64_t layer) {
  const int64_t source = groups_.of(layer).pool.source_of(layer);
  for (const CacheRows::Span& span : rows_.spans()) {
    if (rows_.is_open(span.row)) {
      row_tables_.write_numbers(block_.host(), span.place, span.row, layer);
      block_.upload_pages(span.place, source);
    }
  }
}

void ForwardTables::number_resident(std::span<const int64_t> layers) {
  const std::span<const CacheRows::Span> spans = rows_.spans();
  if (spans.empty()) {
    return;
  }
  int64_t first = spans.front().place;
  int64_t last = first;
  for (const CacheRows::Span& span : spans) {
    for (const int64_t layer : layers) {
      row_tables_.write_numbers(block_.host(), span.place, span.row, layer);
    }
    first = std::min(first, span.place);
    last = std::max(last, span.place);
  }
  block_.upload_rows(first, last);
}

}  // namespace specdec
