#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/transformer/adapters/adapter_stack.h"

namespace specdec {

/// What the adapters of a stack add to the matrix of one of the hub's modules: a sum of b(a x).
class ModuleUpdate {
 public:
  /// `a` [rank, in], `b` [out, rank].
  void add(const Tensor& a, const Tensor& b);
  /// Rows [first, first + count) of the sum, [count, in] float64.
  Tensor rows(int64_t first, int64_t count) const;

 private:
  std::vector<std::pair<Tensor, Tensor>> pairs_;  // a, b
};

/// The updates of all modules that a stack changes, by their names ("model.layers.3.mlp.up_proj"),
/// scales included.
std::map<std::string, ModuleUpdate> module_updates(const AdapterStack& stack);

}  // namespace specdec
