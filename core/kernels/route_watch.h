#pragma once
#include <functional>
#include <memory>

#include "core/kernels/ops.h"

namespace specdec {

/// Called with the routes of each layer with experts, in the order of a forward's layers; they are
/// valid during the call.
using RouteWatch = std::function<void(const Routes&)>;

/// The CPU's ops, which show a watch what they route; for TransformerOptions::ops.
std::shared_ptr<Ops> watched_cpu_ops(RouteWatch watch);

}  // namespace specdec
