#include "core/families/unsupported_keys.h"

#include <fmt/format.h>

#include "core/formats/json_keys.h"
#include "core/formats/quantised/compression_scheme.h"
#include "core/transformer/rope_config.h"

namespace specdec {

void refuse_unsupported_keys(const JsonKeys& keys) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (keys.has(key)) {
      const std::string method = quantisation_method(keys.object(key));
      if (key == std::string("quantization_config") && is_known_quantisation(method)) {
        continue;  // read, or refused in detail, where the tensors are opened
      }
      keys.fail(key,
                fmt::format("says that the weights are quantised (quant_method '{}'), which "
                            "is not supported; use the original checkpoint, one of "
                            "compressed-tensors (to which llm-compressor brings a model), gptq, "
                            "awq, modelopt, bitsandbytes, fp8, torchao or MLX, or a GGUF file",
                            method));
    }
  }
  refuse_partial_rotation(keys);
}

}  // namespace specdec
