#include "core/transformer/heads/block_correction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace specdec {
namespace {

/// The rows of a table for the tokens of some nodes, [k, columns] on the host.
Tensor look_up(const BlockSlots& slots, const Linear& table, const Draft& partial,
               std::span<const int64_t> nodes) {
  Tensor tokens = at::empty({std::ssize(nodes)}, at::kInt);
  for (size_t i = 0; i < nodes.size(); ++i) {
    tokens.mutable_data_ptr<int32_t>()[i] = partial.tokens[static_cast<size_t>(nodes[i])];
  }
  return slots.ops->embed_rows(table, tokens, 1.0).cpu();
}

/// rows [k, columns] * table^T, [k, tokens] on the host.
Tensor multiply(const BlockSlots& slots, const Linear& table, const Tensor& rows) {
  return slots.ops->linear(table, rows.to(table.device()).contiguous()).cpu();
}

/// What a recurrent layer keeps at a node: of `step(parent's memory, node)`, made once for each
/// node; the memory before the root is `start`.
template <class Step>
Tensor memory_of(BlockSlots& slots, const Draft& partial, int64_t node, const Tensor& start,
                 const Step& step) {
  slots.memory.resize(static_cast<size_t>(partial.size()));
  Tensor memory = start;
  for (const int64_t on_path : partial.path_to(node)) {
    Tensor& own = slots.memory[static_cast<size_t>(on_path)];
    if (!own.defined()) {
      own = step(memory, on_path);
    }
    memory = own;
  }
  return memory;
}

/// DSpark's bias of a slot by the token before it (arXiv:2607.05147): W2 z, with e = W1 [token] and
///   vanilla  z = e
///   gated    z = e * sigmoid(G [h; e] + b)
///   rnn      [g, c, o] = J [s; e; h] + b, s' = sigmoid(g) s + (1 - sigmoid(g)) tanh(c), z =
///   tanh(o)
/// It is added after the soft cap and is not capped.
class MarkovCorrection final : public BlockCorrection {
 public:
  MarkovCorrection(const BlockHeadConfig& config, const HeadTensors& tensors, const Tensor& order)
      : config_(config.markov) {
    const int64_t rank = config_.rank;
    const int64_t hidden = config.hidden_size;
    before_ = tensors.matrix("markov_head.markov_w1.weight", {config.vocab_size, rank}, {});
    after_ = tensors.matrix("markov_head.markov_w2.weight", {config.draft_vocab_size, rank}, order);
    if (const char* name = gate_name(); name != nullptr) {
      const bool gated = config_.gate == MarkovGate::kGated;
      const int64_t rows = gated ? rank : 3 * rank;
      gate_ =
          tensors.small(std::string(name) + ".weight", {rows, hidden + (gated ? rank : 2 * rank)});
      gate_bias_ = tensors.small(std::string(name) + ".bias", {rows});
    }
    if (config_.confidence) {
      const int64_t read = hidden + (config_.confidence_with_markov ? rank : 0);
      confidence_ = tensors.small("confidence_head.proj.weight", {1, read});
      confidence_bias_ = tensors.small("confidence_head.proj.bias", {1});
    }
  }

  Tensor correct(BlockSlots& slots, const Draft& partial,
                 std::span<const int64_t> nodes) const override {
    const Tensor bias = multiply(slots, after_, mixed(slots, partial, nodes));
    return slot_rows(slots.logits, partial, nodes) + bias;
  }

  Tensor confidence(BlockSlots& slots, const Draft& partial,
                    std::span<const int64_t> nodes) const override {
    if (!config_.confidence) {
      return {};
    }
    Tensor read = slot_rows(slots.states, partial, nodes);
    if (config_.confidence_with_markov) {
      read = at::cat({read, look_up(slots, before_, partial, nodes)}, 1);
    }
    return at::linear(read, confidence_, confidence_bias_).squeeze(1);
  }

  void write(TensorWriter& writer) const override {
    writer.add("markov_head.markov_w1.weight", before_.unpack());
    writer.add("markov_head.markov_w2.weight", after_.unpack());
    if (const char* name = gate_name(); name != nullptr) {
      writer.add(std::string(name) + ".weight", gate_);
      writer.add(std::string(name) + ".bias", gate_bias_);
    }
    if (config_.confidence) {
      writer.add("confidence_head.proj.weight", confidence_);
      writer.add("confidence_head.proj.bias", confidence_bias_);
    }
  }

 private:
  const char* gate_name() const {
    switch (config_.gate) {
      case MarkovGate::kVanilla:
        return nullptr;
      case MarkovGate::kGated:
        return "markov_head.gate_proj";
      case MarkovGate::kRnn:
        return "markov_head.joint_proj";
    }
    return nullptr;
  }

  /// z of each node, [k, rank].
  Tensor mixed(BlockSlots& slots, const Draft& partial, std::span<const int64_t> nodes) const {
    const Tensor e = look_up(slots, before_, partial, nodes);
    if (config_.gate == MarkovGate::kVanilla) {
      return e;
    }
    const Tensor h = slot_rows(slots.states, partial, nodes);
    if (config_.gate == MarkovGate::kGated) {
      return e * at::sigmoid(at::linear(at::cat({h, e}, 1), gate_, gate_bias_));
    }
    std::vector<Tensor> mixed;
    for (const int64_t node : nodes) {
      const int64_t parent = partial.parents[static_cast<size_t>(node)];
      const Tensor start = at::zeros({config_.rank}, gate_.options());
      const Tensor before = parent < 0 ? start : state(slots, partial, parent, start);
      mixed.push_back(at::tanh(joint(slots, partial, node, before)[2]));
    }
    return at::stack(mixed);
  }

  /// [g, c, o] of a node, [3, rank].
  Tensor joint(const BlockSlots& slots, const Draft& partial, int64_t node,
               const Tensor& state) const {
    const Tensor e = look_up(slots, before_, partial, {&node, 1})[0];
    const Tensor h = slot_rows(slots.states, partial, {&node, 1})[0];
    return at::linear(at::cat({state, e, h}), gate_, gate_bias_).view({3, config_.rank});
  }

  /// s' of a node, [rank].
  Tensor state(BlockSlots& slots, const Draft& partial, int64_t node, const Tensor& start) const {
    return memory_of(slots, partial, node, start, [&](const Tensor& before, int64_t on_path) {
      const Tensor parts = joint(slots, partial, on_path, before);
      const Tensor kept = at::sigmoid(parts[0]);
      return kept * before + (1 - kept) * at::tanh(parts[1]);
    });
  }

  MarkovConfig config_;
  Linear before_;  // W1 [vocab, rank]
  Linear after_;   // W2 [draft vocab, rank], in the order of the target's tokens
  Tensor gate_, gate_bias_;
  Tensor confidence_, confidence_bias_;
};

/// Domino's bias (arXiv:2605.29707): E2 silu(E0 [h; s]), where s is the state of a gated recurrent
/// layer (Cho et al., 2014, without biases) that has read the block's tokens.
class DominoCorrection final : public BlockCorrection {
 public:
  DominoCorrection(const BlockHeadConfig& config, const HeadTensors& tensors)
      : config_(config.domino) {
    const int64_t size = config_.state_size;
    const int64_t hidden = config.hidden_size;
    input_ = tensors.small("prefix_gru.weight_ih_l0", {3 * size, hidden});
    recurrent_ = tensors.small("prefix_gru.weight_hh_l0", {3 * size, size});
    low_ = tensors.small("embed_proj.0.weight", {config_.rank, hidden + size});
    high_ = tensors.matrix("embed_proj.2.weight", {config.vocab_size, config_.rank}, {});
  }

  Tensor correct(BlockSlots& slots, const Draft& partial,
                 std::span<const int64_t> nodes) const override {
    const std::vector<int64_t> depths = partial.depths();
    std::vector<Tensor> rows;
    for (const int64_t node : nodes) {
      const int64_t slot = depths[static_cast<size_t>(node)];
      Tensor row = slots.logits[slot];
      if (slot >= config_.plain_drafts) {
        const Tensor read = at::cat({slots.states[slot], state(slots, partial, node)});
        row = row + multiply(slots, high_, at::silu(at::mv(low_, read)).unsqueeze(0))[0];
      }
      rows.push_back(row);
    }
    return at::stack(rows);
  }

  void write(TensorWriter& writer) const override {
    writer.add("prefix_gru.weight_ih_l0", input_);
    writer.add("prefix_gru.weight_hh_l0", recurrent_);
    writer.add("embed_proj.0.weight", low_);
    writer.add("embed_proj.2.weight", high_.unpack());
  }

 private:
  /// State [state_size] after the tokens down to a node.
  Tensor state(BlockSlots& slots, const Draft& partial, int64_t node) const {
    const Tensor start = at::zeros({config_.state_size}, input_.options());
    return memory_of(slots, partial, node, start, [&](const Tensor& before, int64_t on_path) {
      const Tensor token = look_up(slots, *slots.embedding, partial, {&on_path, 1})[0];
      const auto in = at::linear(token, input_).chunk(3);
      const auto own = at::linear(before, recurrent_).chunk(3);
      const Tensor reset = at::sigmoid(in[0] + own[0]);
      const Tensor kept = at::sigmoid(in[1] + own[1]);
      return (1 - kept) * at::tanh(in[2] + reset * own[2]) + kept * before;
    });
  }

  DominoConfig config_;
  Tensor input_, recurrent_;  // rows of r, z, n
  Tensor low_;                // E0 [rank, hidden + state_size]
  Linear high_;               // E2 [vocab, rank]
};

/// DFlash2's choice: of a slot's most likely tokens, each scored by its logit and by how it follows
/// the token before: <A [before] * (P h), B [token]>. All others have no probability.
class CandidateSelector final : public BlockCorrection {
 public:
  CandidateSelector(const BlockHeadConfig& config, const HeadTensors& tensors)
      : candidates_(config.dflash2.candidates) {
    const int64_t rank = config.dflash2.rank;
    const std::vector<int64_t> codebook = {config.vocab_size, rank};
    before_ = tensors.matrix("candidate_selector.predecessor_codebook", codebook, {});
    after_ = tensors.matrix("candidate_selector.successor_codebook", codebook, {});
    hidden_ =
        tensors.small("candidate_selector.hidden_projection.weight", {rank, config.hidden_size});
  }

  Tensor correct(BlockSlots& slots, const Draft& partial,
                 std::span<const int64_t> nodes) const override {
    const Tensor logits = slot_rows(slots.logits, partial, nodes);
    const Tensor states = slot_rows(slots.states, partial, nodes);
    const Tensor keys = look_up(slots, before_, partial, nodes) * at::linear(states, hidden_);
    Tensor scores = at::full_like(logits, -std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < std::ssize(nodes); ++i) {
      const Tensor ids = best(logits[i]);
      const Tensor codes = slots.ops->embed_rows(after_, ids.to(at::kInt), 1.0).cpu();
      const Tensor pairs = at::mv(codes, keys[i]);
      scores[i].index_copy_(0, ids, logits[i].index_select(0, ids) + pairs);
    }
    return scores;
  }

  void write(TensorWriter& writer) const override {
    writer.add("candidate_selector.predecessor_codebook", before_.unpack());
    writer.add("candidate_selector.successor_codebook", after_.unpack());
    writer.add("candidate_selector.hidden_projection.weight", hidden_);
  }

 private:
  /// The ids of the largest logits of a row, [candidates] int64; of equal ones the lowest ids.
  Tensor best(const Tensor& row) const {
    const Tensor values = row.to(at::kDouble).contiguous();
    const double* logits = values.const_data_ptr<double>();
    std::vector<int64_t> ids(static_cast<size_t>(values.numel()));
    std::iota(ids.begin(), ids.end(), 0);
    const auto end = ids.begin() + std::min<int64_t>(candidates_, std::ssize(ids));
    std::partial_sort(ids.begin(), end, ids.end(), [&](int64_t a, int64_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    return at::tensor(at::ArrayRef<int64_t>(ids.data(), static_cast<size_t>(end - ids.begin())),
                      at::kLong);
  }

  int64_t candidates_;
  Linear before_, after_;  // A, B [vocab, rank]
  Tensor hidden_;          // P [rank, hidden]
};

}  // namespace

Tensor slot_rows(const Tensor& rows, const Draft& partial, std::span<const int64_t> nodes) {
  const std::vector<int64_t> depths = partial.depths();
  std::vector<Tensor> found;
  for (const int64_t node : nodes) {
    found.push_back(rows[depths[static_cast<size_t>(node)]]);
  }
  return at::stack(found);
}

Tensor BlockCorrection::confidence(BlockSlots&, const Draft&, std::span<const int64_t>) const {
  return {};
}

std::shared_ptr<const BlockCorrection> make_block_correction(const BlockHeadConfig& config,
                                                             const HeadTensors& tensors,
                                                             const Tensor& order) {
  switch (config.method) {
    case BlockMethod::kDFlash:
      return nullptr;
    case BlockMethod::kDSpark:
      if (config.markov.rank == 0) {
        return nullptr;
      }
      return std::make_shared<const MarkovCorrection>(config, tensors, order);
    case BlockMethod::kDomino:
      return std::make_shared<const DominoCorrection>(config, tensors);
    case BlockMethod::kDFlash2:
      return std::make_shared<const CandidateSelector>(config, tensors);
  }
  return nullptr;
}

}  // namespace specdec
