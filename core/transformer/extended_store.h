#pragma once
#include <type_traits>

#include "core/kv_store.h"

namespace specdec {

/// What `evaluate` returns of nodes that the store has been extended by: they stay pending. The
/// extend is undone where it throws, and where its result is false or empty: it evaluated nothing.
template <class Evaluate>
auto with_new_nodes(KvStore& store, const NewNodes& nodes, const Evaluate& evaluate) {
  using Result = std::invoke_result_t<const Evaluate&>;
  store.extend(nodes);
  try {
    if constexpr (std::is_constructible_v<bool, Result>) {
      Result result = evaluate();
      if (!result) {
        store.undo_extend();
      }
      return result;
    } else {
      return evaluate();
    }
  } catch (...) {
    store.undo_extend();
    throw;
  }
}

}  // namespace specdec
