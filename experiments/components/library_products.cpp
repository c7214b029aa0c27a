#include "experiments/components/library_products.h"

#include "core/error.h"
#include "core/families/model_size.h"

namespace specdec {

void check_library_products(const ModelOptions& options, const OpenModel& model) {
  if (!options.library_products) {
    return;
  }
  const LoadOptions as_read{.dtype = parse_dtype(options.dtype),
                            .place = {.device = at::kCPU, .layout = WeightLayout::kRows}};
  if (measure_model(model, as_read).library == 0) {
    throw ConfigError(
        "library multiplies no float32, in which all matrices of this model's layers are: choose "
        "dtype: bfloat16, or use exact");
  }
}

}  // namespace specdec
