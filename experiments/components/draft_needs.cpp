#include "experiments/components/draft_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/families/model_size.h"
#include "core/kernels/panels.h"
#include "core/prefill_size.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/workspace.h"
#include "experiments/components/components.h"
#include "experiments/components/memory_needs.h"
#include "experiments/config/config_node.h"

namespace specdec {
namespace {

bool is_integer(const TensorEntry& entry) {
  return entry.dtype == DType::kI64 || entry.dtype == DType::kI32 || entry.dtype == DType::kBool;
}

/// Whether a tensor is of a module that is in the file and not used.
bool is_of_unused_module(const PlannedHead& head, const std::string& name) {
  const std::string layers = head.prefix + "layers.";
  if (!head.layer_is_module || !name.starts_with(layers)) {
    return false;
  }
  int64_t module = 0;
  const char* begin = name.data() + layers.size();
  return std::from_chars(begin, name.data() + name.size(), module).ec == std::errc() &&
         module >= head.modules;
}

/// Whether a head keeps a tensor of its files.
bool is_loaded(const PlannedHead& head, const TensorEntry& entry) {
  const auto ends_so = [&](const std::string& end) { return entry.name.ends_with(end); };
  return entry.name.rfind(head.prefix, 0) == 0 && !ends_so("inv_freq") && !ends_so("t2d") &&
         !is_of_unused_module(head, entry.name) &&
         std::none_of(head.left_out.begin(), head.left_out.end(), ends_so);
}

/// What the matrices of a head become.
struct HeadFormats {
  const MeasuredModel& target;
  TensorSource& source;
  bool in_blocks;
  std::optional<at::ScalarType> dtype;

  int64_t number_bytes() const {
    return static_cast<int64_t>(c10::elementSize(target.compute_dtype()));
  }
  /// Bytes of a tensor as it was loaded, without what products read of it.
  int64_t plain_bytes(const TensorEntry& entry) const {
    const int64_t numbers =
        std::accumulate(entry.shape.begin(), entry.shape.end(), int64_t{1}, std::multiplies<>());
    if (is_integer(entry)) {
      return numbers * dtype_bytes(entry.dtype);
    }
    const bool is_matrix = entry.shape.size() == 2;
    const at::ScalarType stored =
        is_block(entry.dtype) ? at::kFloat : stored_scalar_type(entry.dtype);
    return numbers *
           (is_matrix ? static_cast<int64_t>(c10::elementSize(plain_dtype(dtype, stored, target)))
                      : number_bytes());
  }
  /// Of so many rows like those of a tensor.
  int64_t packed_matrix(const TensorEntry& entry, int64_t rows) const {
    const bool stays = is_block(entry.dtype) && (!dtype || *dtype == at::kChar);
    const at::ScalarType stored =
        is_block(entry.dtype) ? at::kFloat : stored_scalar_type(entry.dtype);
    const MatrixFormat format(in_blocks ? at::kChar : plain_dtype(dtype, stored, target), stays);
    const MatrixSize size = size_of({{{entry.name, rows}}, entry.shape[1]}, source, format);
    return packed_bytes(size.parts.front(), size.columns, size.form);
  }
  /// Copies of rows of the target's head.
  int64_t row_copies(int64_t rows) const {
    const MatrixSize& head = target.head.defined() ? target.head : target.embedding;
    const WeightFormat own = head.parts.front().format;
    return rows == 0 ? 0
                     : packed_bytes({rows, in_blocks ? WeightFormat::kInt8 : own}, head.columns,
                                    head.form);
  }
};

/// The matrix that a tensor becomes, or a part of: q, k and v are one, and so are gate and up.
std::string matrix_of(std::string name) {
  constexpr std::pair<const char*, const char*> kParts[] = {{"q_proj", "qkv_proj"},
                                                            {"k_proj", "qkv_proj"},
                                                            {"v_proj", "qkv_proj"},
                                                            {"gate_proj", "gate_up_proj"},
                                                            {".up_proj", ".gate_up_proj"}};
  for (const auto& [part, whole] : kParts) {
    if (const size_t found = name.find(part); found != std::string::npos) {
      return name.replace(found, std::string_view(part).size(), whole);
    }
  }
  return name;
}

struct JoinedRows {
  const TensorEntry* entry = nullptr;  ///< one of those that are joined
  int64_t rows = 0;
};

int64_t head_weights(const PlannedHead& head, const TensorFiles& files,
                     const HeadFormats& formats) {
  int64_t bytes = formats.row_copies(head.target_rows);
  std::map<std::string, JoinedRows> matrices;
  for (const TensorEntry* entry : files.tensors()) {
    if (!is_loaded(head, *entry)) {
      continue;
    }
    const bool is_matrix = entry->shape.size() == 2 && !is_integer(*entry);
    if (is_matrix) {
      JoinedRows& joined = matrices[matrix_of(entry->name)];
      joined = {entry, joined.rows + entry->shape[0]};
    }
    bytes += !is_matrix || head.keeps_tensors ? formats.plain_bytes(*entry) : 0;
  }
  for (const auto& [name, joined] : matrices) {
    const int64_t copies = name.ends_with("fc.weight") ? head.modules : 1;
    bytes += copies * formats.packed_matrix(*joined.entry, joined.rows);
  }
  return bytes;
}

}  // namespace

DraftNeeds head_needs(const PlannedHead& head, const ModelFiles& target,
                      const ModelOptions& options, int64_t context) {
  const LoadOptions loading = measured_options(options);
  const auto sizes = measured(*target.open, loading);
  const std::shared_ptr<const TensorFiles> files = head.open();
  TensorSource source(files, loading.place);
  source.leave_out_bytes();
  const bool in_blocks = head.follows_blocks && !sizes->layers.empty() &&
                         is_in_blocks(sizes->layers.front().qkv.parts.front().format);
  const HeadFormats formats{*sizes, source, in_blocks, loading.dtype};
  DraftNeeds needs{.weights = head_weights(head, *files, formats)};
  TransformerInfo layers = *sizes;
  layers.plan = head.layers;
  layers.config.num_layers = std::ssize(head.layers);
  if (!head.layers.empty()) {
    needs.cache = head.modules * cache_needs(layers, options, context);
    needs.activations = head.modules * activation_bytes(layers, std::min(context, kPrefillTokens));
    needs.results = head.modules * rotation_needs(layers, context);
  }
  needs.results +=
      formats.number_bytes() * (context * head.feature_width + sizes->config.vocab_size);
  return needs;
}

DraftNeeds model_needs(std::string key, const MemoryNeeds& all) {
  return {.key = std::move(key),
          .weights = all.matrices + all.vectors,
          .cache = all.cache() - all.cache_on_disk,
          .activations = all.activations,
          .results = all.results + all.rotations};
}

void note_head(const ConfigNode& drafter, const RunPlan& run, PlannedHead head) {
  run.strategy->drafts.emplace_back(
      [key = drafter.path(), head = std::move(head)](const ModelFiles& target,
                                                     const ModelOptions& options, int64_t context) {
        ModelOptions own = options;
        own.cache = options.cache.beside_target();
        DraftNeeds needs = head_needs(head, target, own, context);
        needs.key = key;
        return needs;
      });
}

void note_draft_model(const ConfigNode& drafter, const RunPlan& run, const ModelFiles& files,
                      const ModelOptions& options) {
  run.strategy->drafts.emplace_back(
      [key = drafter.path(), &files, options](const ModelFiles&, const ModelOptions& target,
                                              int64_t context) {
        ModelOptions own = options;
        own.device = target.device;
        try {
          check_device(own);
        } catch (const ConfigError& error) {
          throw ConfigError(fmt::format("{}: {}", key, error.what()));
        }
        const MemoryNeeds all =
            memory_needs(files, own, std::min(context, files.config.max_position_embeddings));
        return model_needs(key, all);
      });
}

}  // namespace specdec
