#pragma once
#include "experiments/components/model_options.h"

namespace specdec {

/// Throws ConfigError where a library is to multiply prompts, but multiplies no matrix of the
/// model's layers, by their headers.
void check_library_products(const ModelOptions& options, const OpenModel& model);

}  // namespace specdec
