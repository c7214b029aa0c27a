#include "kv/tracing_store.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/attention_mass.h"
#include "core/kernels/forwarding_ops.h"
#include "core/kv_trace.h"

namespace specdec {

/// Adds up what ops write and read of the layer that was looked at last.
class TracingStore::Recorder {
 public:
  Recorder(int64_t layers, std::unique_ptr<TraceFile> events) : events_(std::move(events)) {
    trace_.layers.resize(static_cast<size_t>(layers));
    note("begin", [&] { return fmt::format(R"("version":1,"layers":{})", layers); });
  }

  const KvTrace& trace() const {
    check();
    return trace_;
  }
  /// Throws Error where events could not be written.
  void check() const {
    if (events_ != nullptr) {
      events_->check();
    }
  }
  /// Writes an event, where anyone wants them; `fields` gives what belongs to it.
  template <typename Fields>
  void note(const char* event, const Fields& fields) {
    if (events_ != nullptr) {
      events_->write(event, fields());
    }
  }
  void begin_forward(const NewNodes& nodes) {
    ++trace_.forwards;
    note("forward", [&] {
      rows_.assign(nodes.rows.begin(), nodes.rows.end());
      rows_.resize(static_cast<size_t>(nodes.count));  // without rows all are of row 0
      return fmt::format(R"("number":{},"nodes":{})", trace_.forwards, nodes.count);
    });
  }
  void undo_forward() {
    note("undo", [&] { return fmt::format(R"("number":{})", trace_.forwards); });
  }
  void look_at(int64_t layer) { layer_ = static_cast<size_t>(layer); }

  void note_written(const KvView& written) {
    const BatchTables tables = host_tables(*written.tables);
    KvView view = written;
    view.tables = &tables;
    layer().written += tables.nodes;
    const auto* places = tables.rows.const_data_ptr<int32_t>();
    const auto* slots = tables.slots.const_data_ptr<int32_t>();
    const auto* positions = tables.positions.const_data_ptr<int32_t>();
    std::vector<std::vector<int64_t>> tokens;
    for (int64_t node = 0; node < tables.nodes; ++node) {
      const int64_t index = places[node] * view.page_stride() + slots[node] / view.page_size();
      const int64_t number = view.page_table()[index];
      ++page(view, number).written;
      if (events_ != nullptr) {
        tokens.push_back({rows_[static_cast<size_t>(node)], positions[node], number,
                          slots[node] % view.page_size()});
      }
    }
    note("write", [&] { return fmt::format(R"({},"tokens":{})", place_of(view), tokens); });
  }

  void note_read(const Tensor& queries, const KvView& view, const AttentionOptions& options) {
    layer().nodes += view.tables->nodes;
    std::map<int64_t, ReadPage> pages;
    attention_mass(queries, view, options, [&](const SeenKey& key) {
      const size_t bucket = age_bucket(key.age);
      KvTrace::Layer& own = layer();
      if (own.keys.size() <= bucket) {
        own.keys.resize(bucket + 1);
        own.mass.resize(bucket + 1);
      }
      ++own.keys[bucket];
      own.mass[bucket] += key.weight;
      ++page(view, key.page).read;
      if (events_ != nullptr) {
        ReadPage& read = pages[key.page];
        ++read.keys;
        read.mass += key.weight;
      }
    });
    note("read", [&] {
      std::vector<std::string> texts;
      for (const auto& [number, read] : pages) {
        texts.push_back(fmt::format("[{}, {}, {:.6g}]", number, read.keys, read.mass));
      }
      return fmt::format(R"({},"pages":[{}])", place_of(view), fmt::join(texts, ", "));
    });
  }

 private:
  /// What the nodes of a forward read of a page: keys, each once for every node that sees it.
  struct ReadPage {
    int64_t keys = 0;
    double mass = 0.0;
  };

  std::string place_of(const KvView& view) const {
    return fmt::format(R"("layer":{},"group":{})", layer_, view.group);
  }
  KvTrace::Layer& layer() { return trace_.layers[layer_]; }
  KvTrace::Page& page(const KvView& view, int64_t number) {
    const auto group = static_cast<size_t>(view.group);
    if (trace_.pages.size() <= group) {
      trace_.pages.resize(group + 1);
    }
    std::vector<KvTrace::Page>& pages = trace_.pages[group];
    if (std::ssize(pages) <= number) {
      pages.resize(static_cast<size_t>(number) + 1);
    }
    return pages[static_cast<size_t>(number)];
  }

  KvTrace trace_;
  std::unique_ptr<TraceFile> events_;
  std::vector<RowId> rows_;  // [nodes] names of the newest forward's rows, for events
  size_t layer_ = 0;
};

/// The model's ops, which say what they write and read.
class TracingStore::RecordingOps final : public ForwardingOps {
 public:
  RecordingOps(std::shared_ptr<Ops> ops, std::shared_ptr<Recorder> recorder)
      : ForwardingOps(std::move(ops)), recorder_(std::move(recorder)) {}

  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    ForwardingOps::qkv_to_cache(qkv, options, view, queries);
    if (options.kv_projections > 0) {
      recorder_->note_written(view);
    }
  }
  void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                       Tensor& out) override {
    SPECDEC_CHECK(view.pooled == nullptr, "a trace sees keys of tokens, no means");
    ForwardingOps::paged_attention(queries, view, options, out);
    recorder_->note_read(queries, view, options);
  }

 private:
  std::shared_ptr<Recorder> recorder_;
};

TracingStore::TracingStore(std::unique_ptr<KvStore> store, int64_t layers,
                           std::unique_ptr<TraceFile> events)
    : ForwardingStore(std::move(store)),
      recorder_(std::make_shared<Recorder>(layers, std::move(events))) {}

void TracingStore::extend(const NewNodes& nodes) {
  recorder_->check();
  ForwardingStore::extend(nodes);
  recorder_->begin_forward(nodes);
}

void TracingStore::undo_extend() {
  ForwardingStore::undo_extend();
  recorder_->undo_forward();
}

std::string TracingStore::state_of(RowId row) const {
  return fmt::format(R"("row":{},"length":{})", row, length(row));
}

void TracingStore::note_row(const char* event, RowId row) {
  recorder_->note(event, [&] { return state_of(row); });
}

void TracingStore::commit(RowId row, std::span<const int64_t> path) {
  ForwardingStore::commit(row, path);
  recorder_->note("commit", [&] {
    return fmt::format(R"({},"path":[{}])", state_of(row), fmt::join(path, ", "));
  });
}

void TracingStore::truncate(RowId row, int64_t length) {
  ForwardingStore::truncate(row, length);
  note_row("truncate", row);
}

RowId TracingStore::open() {
  const RowId row = ForwardingStore::open();
  note_row("open", row);
  return row;
}

RowId TracingStore::fork(RowId row, int64_t length) {
  const RowId made = ForwardingStore::fork(row, length);
  recorder_->note("fork", [&] { return fmt::format(R"({},"from":{})", state_of(made), row); });
  return made;
}

void TracingStore::close(RowId row) {
  ForwardingStore::close(row);
  recorder_->note("close", [&] { return fmt::format(R"("row":{})", row); });
}

void TracingStore::restore(RowId row, const KvSnapshot& snapshot, int64_t length) {
  ForwardingStore::restore(row, snapshot, length);
  note_row("restore", row);
}

void TracingStore::append(RowId row, int64_t count, const NumbersOfLayer& numbers) {
  ForwardingStore::append(row, count, numbers);
  note_row("append", row);
}

KvView TracingStore::view(int64_t layer) const {
  recorder_->look_at(layer);
  return ForwardingStore::view(layer);
}

std::shared_ptr<Ops> TracingStore::observed(std::shared_ptr<Ops> ops) {
  return std::make_shared<RecordingOps>(ForwardingStore::observed(std::move(ops)), recorder_);
}

const KvTrace* TracingStore::trace() const { return &recorder_->trace(); }

}  // namespace specdec
