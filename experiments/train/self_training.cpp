#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/error.h"
#include "core/transformer/adapters/lora_adapter.h"
#include "core/transformer/random_weights.h"
#include "experiments/train/head_training.h"

namespace specdec {
namespace {

/// A module of the target and the matrices that are learnt for it.
struct AdaptedModule {
  LoraModule module;
  at::Tensor a;  ///< [rank, in]
  at::Tensor b;  ///< [rows, rank]
};

/// The target with its first layers alone, whose modules an adapter is read and written for.
std::shared_ptr<const TransformerWeights> first_layers_of(const TransformerTensors& target,
                                                          int64_t layers) {
  TransformerTensors first = target;
  first.layers.resize(static_cast<size_t>(layers));
  first.plan.resize(static_cast<size_t>(layers));
  first.config.num_layers = layers;
  return pack(first, {.place = Placement{}});
}

/// A LoRA for early exit. Unrolled as it drafts: the node at depth d of an anchor has passed the
/// adapted layers, and sees the target's own keys and values up to the anchor and those of the
/// adapted nodes behind it.
class SelfTraining final : public HeadTraining {
 public:
  SelfTraining(const HeadShape& shape, const HeadTrainingContext& context)
      : target_(context.target),
        matmul_dtype_(context.matmul_dtype),
        shape_(shape.lora),
        target_name_(context.target_name),
        base_(first_layers_of(*target_, shape_.layers)) {
    RandomTensors random({.seed = context.seed});
    for (const LoraModule& module : lora_modules(*base_, shape_)) {
      // B = 0: training begins at the target's own early exit.
      modules_.push_back({module, random.matrix(shape_.rank, module.matrix->in()),
                          at::zeros({module.rows, shape_.rank})});
    }
  }

  void collect(std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others) override {
    std::vector<at::Tensor*> parameters;
    for (AdaptedModule& one : modules_) {
      parameters.insert(parameters.end(), {&one.a, &one.b});
    }
    collect_parameters(parameters, target_->place.device, matrices, others);
  }

  std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const override {
    const int64_t columns = batch.tokens.size(1) - 2;
    std::vector<UnrolledKeys> past = kept_keys(batch.tokens.narrow(1, 0, columns));
    const std::vector<LayerTensors> layers = adapted_layers();
    std::vector<DepthOutput> outputs;
    for (int64_t d = 1; d <= std::min(depth, columns); ++d) {
      at::Tensor x = reference_embedding(*target_, tokens_at_depth(batch, d));
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        x = reference_layer(reference(layer, layers[layer]), x, {}, &past[layer]);
      }
      const at::Tensor drafted = x.flatten(0, 1).index_select(0, guessed_places(batch, d).anchors);
      const at::Tensor hidden =
          reference_norm(drafted, target_->final_norm, target_->config.rms_norm_eps);
      outputs.push_back({.logits = reference_head(*target_, hidden), .features = {}});
    }
    return outputs;
  }

  void save(const std::filesystem::path& folder) const override {
    LoraTensors adapter{.shape = shape_, .base = target_name_, .modules = {}};
    for (const AdaptedModule& one : modules_) {
      adapter.modules.push_back({one.module.name, one.a, one.b});
    }
    save_lora(adapter, folder, at::kBFloat16);
  }

  void load(const std::filesystem::path& folder) override {
    const auto stored = load_lora(folder, base_);
    for (AdaptedModule& one : modules_) {
      const auto pair =
          std::find_if(stored->pairs.begin(), stored->pairs.end(), [&one](const LoraPair& each) {
            return each.matrix == one.module.matrix && each.first == one.module.first;
          });
      SPECDEC_CHECK(pair != stored->pairs.end(), "{} was not stored", one.module.name);
      one.a = pair->a.to(target_->place.device);
      one.b = pair->b.to(target_->place.device) / factor();
    }
  }

 private:
  double factor() const { return shape_.alpha / static_cast<double>(shape_.rank); }

  LayerReference reference(size_t layer, const LayerTensors& weights) const {
    const at::ScalarType dtype = target_->compute_dtype();
    return {.plan = target_->plan[layer],
            .weights = weights,
            .eps = target_->config.rms_norm_eps,
            .bidirectional = false,
            .dtype = dtype,
            .matmul_dtype = matmul_dtype_.value_or(dtype)};
  }

  /// Keys and values of the target's own layers: [layers].
  std::vector<UnrolledKeys> kept_keys(const at::Tensor& tokens) const {
    const c10::NoGradGuard frozen;
    std::vector<UnrolledKeys> kept(static_cast<size_t>(shape_.layers));
    at::Tensor x = reference_embedding(*target_, tokens);
    for (size_t layer = 0; layer < kept.size(); ++layer) {
      x = reference_layer(reference(layer, target_->layers[layer]), x, {}, &kept[layer]);
    }
    return kept;
  }

  /// The first layers with the adapter in their matrices.
  std::vector<LayerTensors> adapted_layers() const {
    std::vector<LayerTensors> layers(target_->layers.begin(),
                                     target_->layers.begin() + shape_.layers);
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      std::vector<at::Tensor*> matrices;
      visit_shared_matrices(layers[layer], [&](at::Tensor& each) { matrices.push_back(&each); });
      size_t index = 0;
      visit_shared_matrices(base_->layers[layer], [&](const Linear& of) {
        at::Tensor& matrix = *matrices[index++];
        matrix = with_updates(matrix, of);
      });
    }
    return layers;
  }

  /// `matrix`, which `of` is in base_, and what is learnt for its modules.
  at::Tensor with_updates(at::Tensor matrix, const Linear& of) const {
    for (const AdaptedModule& one : modules_) {
      if (one.module.matrix == &of) {
        const int64_t after = matrix.size(0) - one.module.first - one.module.rows;
        const at::Tensor update = at::matmul(one.b, one.a) * factor();
        matrix = matrix + at::constant_pad_nd(update, {0, 0, one.module.first, after});
      }
    }
    return matrix;
  }

  std::shared_ptr<const TransformerTensors> target_;
  std::optional<at::ScalarType> matmul_dtype_;
  LoraShape shape_;
  std::string target_name_;
  std::shared_ptr<const TransformerWeights> base_;
  std::vector<AdaptedModule> modules_;
};

}  // namespace

std::unique_ptr<HeadTraining> make_self_training(const HeadShape& shape,
                                                 const HeadTrainingContext& context) {
  return std::make_unique<SelfTraining>(shape, context);
}

}  // namespace specdec
