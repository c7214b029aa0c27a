#include "core/transformer/kv_key.h"

#include <fmt/format.h>

#include "core/hash.h"
#include "core/kernels/pooled_keys.h"

namespace specdec {

std::string kv_key_of(const TransformerWeights& weights, const std::string& fingerprint,
                      const KvStore& store) {
  std::string text =
      fmt::format("{};{};{};{};{};", fingerprint, c10::toString(weights.compute_dtype()),
                  static_cast<int>(weights.activations),
                  static_cast<int>(store.describe(0).format) +
                      64 * static_cast<int>(store.describe(0).rotation),
                  c10::DeviceTypeName(weights.place.device.type()));
  for (size_t i = 0; i < weights.plan.size(); ++i) {
    const LayerPlan& layer = weights.plan[i];
    const KvView view = store.describe(static_cast<int64_t>(i));
    text += fmt::format("{}x{}/{}+{}/{},", layer.kv_heads, layer.head_dim, view.window, view.sink,
                        layer.kv_source);
    if (view.exact.recent > 0) {
      text += fmt::format("e{},", view.exact.recent);
    }
    if (view.levels.defined()) {
      const Tensor levels = view.levels.cpu();
      text += fmt::format("l{:016x},",
                          hash_bytes(kHashStart, levels.const_data_ptr(), levels.nbytes()));
    }
    if (view.pooled != nullptr) {
      const Pooling& pooling = view.pooled->pooling();
      text += fmt::format("p{}/{},", pooling.chunk, pooling.recent);
    }
  }
  visit_forward_matrices(weights, [&text](const Linear& matrix) {
    for (const Linear::Part& part : matrix.parts()) {
      text += fmt::format("{}x{}:{};", part.out, matrix.in(), format_name(part.format));
    }
  });
  return fmt::format("{:016x}", hash_bytes(kHashStart, text.data(), text.size()));
}

}  // namespace specdec
