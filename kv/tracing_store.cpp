#include "kv/tracing_store.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/kernels/attention_mass.h"
#include "core/kernels/forwarding_ops.h"
#include "core/kv_trace.h"

namespace specdec {

/// Adds up what ops write and read of the layer that was looked at last.
class TracingStore::Recorder {
 public:
  explicit Recorder(int64_t layers) { trace_.layers.resize(static_cast<size_t>(layers)); }

  const KvTrace& trace() const { return trace_; }
  void begin_forward() { ++trace_.forwards; }
  void look_at(int64_t layer) { layer_ = static_cast<size_t>(layer); }

  void note_written(const KvView& view) {
    const BatchTables& tables = *view.tables;
    layer().written += tables.nodes;
    const auto* rows = tables.rows.const_data_ptr<int32_t>();
    const auto* slots = tables.slots.const_data_ptr<int32_t>();
    for (int64_t node = 0; node < tables.nodes; ++node) {
      const int64_t index = rows[node] * view.page_stride() + slots[node] / view.page_size();
      ++page(view, view.page_table()[index]).written;
    }
  }

  void note_read(const Tensor& queries, const KvView& view, const AttentionOptions& options) {
    layer().nodes += view.tables->nodes;
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
    });
  }

 private:
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

TracingStore::TracingStore(std::unique_ptr<KvStore> store, int64_t layers)
    : ForwardingStore(std::move(store)), recorder_(std::make_shared<Recorder>(layers)) {}

void TracingStore::extend(const NewNodes& nodes) {
  ForwardingStore::extend(nodes);
  recorder_->begin_forward();
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
