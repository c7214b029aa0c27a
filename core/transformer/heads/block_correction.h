#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/draft.h"
#include "core/kernels/ops.h"
#include "core/transformer/heads/block_head_config.h"
#include "core/transformer/tensor_writer.h"

namespace specdec {

/// Where a head's tensors come from: a file, or random numbers.
struct HeadTensors {
  /// A small one, of the compute dtype, on the host.
  std::function<Tensor(const std::string& name, const std::vector<int64_t>& shape)> small;
  /// A matrix with a row for each token, where the target's are. `order` [rows] int64: the file's
  /// row of each; undefined = as they are.
  std::function<Linear(const std::string& name, const std::vector<int64_t>& shape,
                       const Tensor& order)>
      matrix;
};

/// A block that was evaluated, while a draft of it grows. Its tensors are on the host.
struct BlockSlots {
  Tensor logits;                      ///< [slots, draft vocab] of each slot by itself
  Tensor states;                      ///< [slots, hidden] after the final norm
  Ops* ops = nullptr;                 ///< of the target's device
  const Linear* embedding = nullptr;  ///< the table that the block's rows come from
  std::vector<Tensor> memory = {};    ///< [nodes] of a draft: what a recurrent layer keeps at each
};

/// A depth's row of a tensor for each of some nodes of a draft, [k, columns].
Tensor slot_rows(const Tensor& rows, const Draft& partial, std::span<const int64_t> nodes);

/// The part of a block drafter that makes a slot's logits depend on the tokens drafted before it.
/// Immutable. Products with a row for each token are the device's, all else is computed on the
/// host.
class BlockCorrection {
 public:
  virtual ~BlockCorrection() = default;
  BlockCorrection() = default;
  BlockCorrection(const BlockCorrection&) = delete;
  BlockCorrection& operator=(const BlockCorrection&) = delete;

  /// Logits [k, draft vocab] of the token after each of the nodes of a draft, which slot `depth`
  /// gives. Parents were asked for before their children.
  virtual Tensor correct(BlockSlots& slots, const Draft& partial,
                         std::span<const int64_t> nodes) const = 0;
  /// Logits [k] of the probability that a draft after each of the nodes is accepted, as the head
  /// predicts it from what was drafted before; undefined = it does not.
  virtual Tensor confidence(BlockSlots& slots, const Draft& partial,
                            std::span<const int64_t> nodes) const;
  virtual void write(TensorWriter& writer) const = 0;
};

/// The correction of a config's method; nullptr where there is none. `order` [draft vocab] int64:
/// the rows of the draft vocabulary in the order of the target's tokens; undefined = as they are.
std::shared_ptr<const BlockCorrection> make_block_correction(const BlockHeadConfig& config,
                                                             const HeadTensors& tensors,
                                                             const Tensor& order = {});

}  // namespace specdec
