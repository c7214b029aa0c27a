#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/device_sampler.h"
#include "core/kernels/kv_format.h"
#include "core/read_backs.h"
#include "core/types.h"

namespace specdec {

using at::Tensor;

class AdapterStack;

/// What heads that live on a model are fed beside tokens, or instead of them (see
/// core/transformer/heads/). Every tensor has a row for each token; other models refuse what they
/// have no use for.
struct ForwardInputs {
  Tensor embeddings = {};  ///< [n, hidden], instead of tokens; scaled already
  /// Inputs [n, hidden] that q, k and v read before the normed residual stream: for layers whose
  /// projection is twice as wide (EAGLE-3).
  Tensor attention_inputs = {};
  /// Features [n, width] of the token before each one, from which a head that lives on a target
  /// continues.
  Tensor features = {};
  bool own_features = false;  ///< `features` are the head's own outputs, not the target's
  /// Summand [n, columns] float32 of the attention scores of every layer; column j < length(row) is
  /// the row's kept token j, column length(row) + k its pending node k. Missing columns count as 0.
  Tensor attention_bias = {};
};

/// New tokens of one forward, for one or several rows (beams, requests) of unequal lengths.
///
/// Nodes of a row are numbered from 0 since the row's last commit or truncate, over forwards: the
/// first forward's nodes are 0..a-1, the next one's a..a+b-1, and a parent may lie in either.
struct TokenBatch {
  /// [n] int32. Those on a device, which a sampler found there, are not read: nobody checks that
  /// they are in the vocabulary.
  Tensor tokens;
  std::vector<RowId> rows = {};  ///< [n] open rows, the nodes of each together; empty = all row 0
  /// Pending node of the same row that each token follows, [n]; -1 = last kept token; empty = one
  /// chain a row, after its last pending node
  std::vector<int64_t> parents = {};
  ForwardInputs inputs = {};  ///< what heads are fed beside or instead of tokens
};

/// Positions whose logits a forward computes.
enum class Logits { kAll, kLast, kNone };

/// What reads the logits of a forward.
enum class LogitsUse {
  kRows,  ///< the host, whole rows
  /// greedy_choice alone. A model on a device then finds it there (ForwardResult::best), and the
  /// logits stay where they are.
  kBest,
  kSampler  ///< ForwardResult::sampler, where there is one: they stay on its device
};

/// Positions whose hidden states a forward gives: none, those with logits, all.
enum class Hidden { kNone, kScored, kAll };

/// What is read of a forward, which need compute no more.
struct ForwardOptions {
  std::vector<int64_t> capture_layers = {};  ///< residual stream after these layers (EAGLE-3)
  /// Layers that are evaluated, ascending, before the final norm and head; empty = all. Fewer of
  /// them make drafts: the first ones an early exit, others layers that are skipped.
  std::vector<int64_t> layers = {};
  /// Adapters for the model's weights that `layers`, which are not all, apply in this forward
  /// alone, beside the model's own: those of a draft (core/transformer/adapters/). Borrowed.
  const AdapterStack* draft_adapters = nullptr;
  /// What attention reads of the cache, of the new nodes too. Nodes of kUpperHalf are drafts: their
  /// keys and values are not those of a forward that reads all, so they cannot be committed. Throws
  /// Error for a cache of another format than kHierarchical.
  KvRead kv_read = KvRead::kAll;
  Logits logits = Logits::kAll;  ///< kLast: the last node of each row in the batch
  LogitsUse logits_use = LogitsUse::kRows;
  /// Layers that read the keys and values of earlier ones are evaluated for the last node of each
  /// row alone where all is not wanted, only that node has logits, and none of them is captured.
  Hidden hidden = Hidden::kNone;
  /// Hidden states and captured layers stay on the model's device, where a head reads them.
  bool keep_hidden = false;
  /// Logits have a column for each token of LanguageModel::draft_vocabulary(), where there is one.
  bool draft_columns = false;
  /// A piece of a prompt that is read from its beginning, whose layers leave products to the
  /// device's library (Ops::library_linear) where it has kFewestLibraryTokens: its bits are those
  /// of whoever reads that prompt so, not those of decoding. Set by Session alone. Throws Error
  /// where there is no library, InternalError for other forwards.
  bool library_products = false;
};

/// Results of a forward, owned by the caller: they outlive commit and truncate. They lie in the
/// host's memory, but for logits that a sampler reads and what the options keep on the device.
struct ForwardResult {
  Tensor logits = {};  ///< [n, or rows in the batch, vocab], float32 (float64 for float64 models)
  /// Best token of each row, instead of logits, where only these are read and a device has found
  /// them; -1 where a row of logits holds no numbers. Empty = there are logits.
  std::vector<GreedyChoice> best = {};
  /// [n, or nodes with logits, hidden] after the final norm, as ForwardOptions::hidden says; same
  /// dtype as logits. Undefined where none was asked for.
  Tensor final_hidden = {};
  /// What decides by the logits on the device where they lie (LogitsUse::kSampler);
  /// nullptr: they lie on the host.
  std::shared_ptr<DeviceSampler> sampler = {};
  ReadBacks read_backs = {};          ///< copies of these results to the host; none of a CPU's
  std::vector<Tensor> captured = {};  ///< each [n, hidden], in the order of capture_layers
};

}  // namespace specdec
