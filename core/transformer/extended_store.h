#pragma once
#include <optional>
#include <type_traits>

#include "core/kv_store.h"

namespace specdec {

/// Whether a result of this type may say that nothing was evaluated.
template <class Result>
constexpr bool kMayBeEmpty = std::is_same_v<Result, bool>;
template <class Value>
constexpr bool kMayBeEmpty<std::optional<Value>> = true;

/// What `evaluate` returns of nodes that the store has been extended by: they stay pending. The
/// extend is undone where it throws, and where its result is false or empty: it evaluated nothing.
template <class Evaluate>
auto with_new_nodes(KvStore& store, const NewNodes& nodes, const Evaluate& evaluate) {
  using Result = std::invoke_result_t<const Evaluate&>;
  store.extend(nodes);
  try {
    if constexpr (kMayBeEmpty<Result>) {
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
