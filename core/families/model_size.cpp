#include "core/families/model_size.h"

#include <algorithm>

#include "core/families/loading.h"
#include "core/kernels/weight_fragments.h"
#include "core/prefill_size.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

/// Most that LibTorch gives cuBLAS and cuBLASLt by default: 32 MiB each, on Hopper.
constexpr int64_t kLibraryWorkspace = int64_t{64} << 20U;

/// The largest matrix in bfloat16, the inputs and outputs of two parts of each token, and more.
int64_t library_bytes(const MeasuredModel& model) {
  int64_t weights = 0, in = 0, out = 0;
  for (int64_t i = 0; i < first_sharing(model.plan); ++i) {  // others only read their keys
    const LayerOf<MatrixSize>& layer = model.layers[static_cast<size_t>(i)];
    for (const MatrixSize* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      for (const LinearPart& part : matrix->parts) {
        if (has_fragments(part.format)) {
          weights = std::max(weights, part.out * matrix->columns);
          in = std::max(in, matrix->columns);
          out = std::max(out, part.out);
        }
      }
    }
  }
  return weights == 0 ? 0 : 2 * weights + 8 * kPrefillTokens * (in + out) + kLibraryWorkspace;
}

}  // namespace

std::shared_ptr<const MeasuredModel> measured(const OpenModel& model, const LoadOptions& options) {
  TensorSource source(model.tensors, options.place);
  source.leave_out_bytes();
  return load_from<MatrixSize>(source, model.description, options);
}

std::vector<const MatrixSize*> distinct_matrices(const MeasuredModel& model) {
  std::vector<const MatrixSize*> all = {&model.embedding};
  visit_forward_matrices(model, [&](const MatrixSize& matrix) {
    if (&matrix != &model.head || !model.config.tie_word_embeddings) {
      all.push_back(&matrix);
    }
  });
  return all;
}

int64_t vector_bytes(const MeasuredModel& model) {
  int64_t bytes = 0;
  const auto add = [&bytes](const Tensor& vector) {
    bytes += vector.defined() ? static_cast<int64_t>(vector.nbytes()) : 0;
  };
  add(model.final_norm);
  add(model.per_layer_norm);
  for (const LayerOf<MatrixSize>& layer : model.layers) {
    visit_vectors(layer, add);
  }
  return bytes;
}

std::map<std::string, int64_t> measure_weights(const OpenModel& model, const LoadOptions& options) {
  return measure_model(model, options).matrices;
}

ModelSize measure_model(const OpenModel& model, const LoadOptions& options) {
  const auto sizes = measured(model, options);
  ModelSize size{.matrices = {},
                 .vectors = vector_bytes(*sizes),
                 .mapped = sizes->per_layer_table.mapped_bytes(),
                 .library = library_bytes(*sizes),
                 .info = *sizes};
  bool has_blocks = false;
  for (const MatrixSize* matrix : distinct_matrices(*sizes)) {
    for (const LinearPart& part : matrix->parts) {
      size.matrices[format_name(part.format)] += packed_bytes(part, matrix->columns, matrix->form);
      has_blocks = has_blocks || has_integer_blocks(part.format);
    }
  }
  require_blocks(options.activations, has_blocks);
  return size;
}

}  // namespace specdec
