#include "kv/stateful_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

/// Head dimension of the layer of a cache whose layers are all recurrent: one that every format can
/// hold.
constexpr int64_t kUnreadDimensions = 32;

[[noreturn]] void refuse_snapshot(const char* what) {
  throw Error(fmt::format(
      "{} is not supported for a model with recurrent layers, whose states it does not hold: read "
      "the text anew",
      what));
}

}  // namespace

StatefulStore::Layout StatefulStore::layout_of(const std::vector<LayerKv>& layers) {
  Layout layout;
  for (const LayerKv& layer : layers) {
    if (layer.state_size > 0) {
      layout.places.push_back({.in_state = layout.state_numbers});
      layout.state_numbers += layer.state_size;
      continue;
    }
    layout.places.push_back({.in_pages = std::ssize(layout.paged)});
    layout.paged.push_back(layer);
    if (const int64_t source = layer.source_layer; source >= 0) {
      layout.paged.back().source_layer = layout.places.at(static_cast<size_t>(source)).in_pages;
    }
  }
  if (layout.paged.empty()) {  // rows and nodes are counted by pages all the same
    layout.paged.push_back({.kv_heads = 1, .head_dim = kUnreadDimensions});
  }
  return layout;
}

/// Tiers of the page store, which numbers layers otherwise than the model.
class StatefulStore::Tiers final : public RowTiers {
 public:
  explicit Tiers(StatefulStore& store) : store_(store), tiers_(*store.pages_.row_tiers()) {}

  std::vector<PlacedPage> pages(RowId row) override {
    std::vector<PlacedPage> placed;
    for (PlacedPage page : tiers_.pages(row)) {
      const auto& places = store_.places_;
      const auto own = std::find_if(places.begin(), places.end(), [&](const Place& place) {
        return place.in_pages == page.layer;
      });
      if (own != places.end()) {  // else nobody reads the layer
        page.layer = own - places.begin();
        placed.push_back(page);
      }
    }
    return placed;
  }
  int64_t demote(RowId row) override { return tiers_.demote(row); }
  int64_t promote(RowId row) override { return tiers_.promote(row); }
  void prefetch_async(RowId row) override { tiers_.prefetch_async(row); }
  int64_t manage_tiers() override { return tiers_.manage_tiers(); }

 private:
  StatefulStore& store_;
  RowTiers& tiers_;
};

StatefulStore::StatefulStore(const std::vector<LayerKv>& layers, const KvCacheOptions& options)
    : StatefulStore(layout_of(layers), options) {}

StatefulStore::StatefulStore(Layout layout, const KvCacheOptions& options)
    : places_(std::move(layout.places)),
      pages_(layout.paged, options),
      states_(layout.state_numbers, options),
      row_tiers_(pages_.row_tiers() != nullptr ? std::make_unique<Tiers>(*this) : nullptr) {}

void StatefulStore::extend(const NewNodes& nodes) {
  pages_.extend(nodes);
  try {
    states_.extend(nodes);
  } catch (...) {
    pages_.undo_extend();
    throw;
  }
}

void StatefulStore::undo_extend() {
  pages_.undo_extend();
  states_.undo_extend();
}

KvView StatefulStore::view(int64_t layer) const {
  const Place& own = place(layer);
  return own.in_pages >= 0 ? pages_.view(own.in_pages) : describe(layer);
}

KvView StatefulStore::describe(int64_t layer) const {
  const Place& own = place(layer);
  if (own.in_pages >= 0) {
    return pages_.describe(own.in_pages);
  }
  KvView view = pages_.describe(0);
  view.keys = view.values = Tensor();
  view.window = view.sink = 0;
  view.states = &states_.nodes();
  view.state_offset = own.in_state;
  return view;
}

bool StatefulStore::make_resident(std::span<const int64_t> layers) {
  std::vector<int64_t> paged;
  for (const int64_t layer : layers) {
    if (const int64_t own = place(layer).in_pages; own >= 0) {
      paged.push_back(own);
    }
  }
  return pages_.make_resident(paged);
}

void StatefulStore::commit(RowId row, std::span<const int64_t> path) {
  pages_.commit(row, path);
  states_.commit(row, path);
}

int64_t StatefulStore::rewindable_to(RowId row, int64_t length) const {
  // Where the pages refuse a length, they take a shorter one only if it is 0.
  return pages_.rewindable_to(row, states_.rewindable_to(row, length));
}

void StatefulStore::truncate(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= pages_.length(row),
                "truncate: row {} holds {} tokens, cannot be cut to {}", row, pages_.length(row),
                length);
  states_.check_rewindable(row, length);
  pages_.truncate(row, length);
  states_.truncate(row, length);
}

RowId StatefulStore::open() {
  const RowId row = pages_.open();
  states_.open(row);
  return row;
}

RowId StatefulStore::fork(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= pages_.length(row), "fork: row {} holds {} tokens, not {}",
                row, pages_.length(row), length);
  states_.check_rewindable(row, length);
  const RowId branch = pages_.fork(row, length);
  states_.fork(row, branch, length);
  return branch;
}

void StatefulStore::close(RowId row) {
  pages_.close(row);
  states_.close(row);
}

std::shared_ptr<const KvSnapshot> StatefulStore::snapshot(RowId /*row*/) {
  refuse_snapshot("a snapshot");
}

void StatefulStore::restore(RowId /*row*/, const KvSnapshot& /*snapshot*/, int64_t /*length*/) {
  refuse_snapshot("restoring a snapshot");
}

void StatefulStore::append(RowId /*row*/, int64_t /*count*/, const NumbersOfLayer& /*numbers*/) {
  refuse_snapshot("following another cache");
}

KvStatistics StatefulStore::statistics() const {
  KvStatistics statistics = pages_.statistics();
  for (std::vector<KvStatistics::Layer>* form : {&statistics.layers, &statistics.exact_layers}) {
    std::vector<KvStatistics::Layer> layers;
    for (size_t layer = 0; layer < places_.size() && !form->empty(); ++layer) {
      const int64_t own = places_[layer].in_pages;
      layers.push_back(own >= 0 ? form->at(static_cast<size_t>(own)) : KvStatistics::Layer());
    }
    *form = std::move(layers);
  }
  statistics.states = states_.count();
  statistics.allocated_states = states_.allocated();
  statistics.state_bytes = states_.state_bytes();
  return statistics;
}

std::pair<Tensor, Tensor> StatefulStore::key_values(int64_t layer, RowId row,
                                                    TokenRange tokens) const {
  if (place(layer).in_pages < 0) {
    throw Error(
        fmt::format("layer {} is recurrent: it has a state instead of keys and values", layer));
  }
  return pages_.key_values(place(layer).in_pages, row, tokens);
}

}  // namespace specdec
