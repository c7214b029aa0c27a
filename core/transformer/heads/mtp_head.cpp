#include "core/transformer/heads/mtp_head.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/gguf/gguf.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/layer_writer.h"

namespace specdec {
namespace {

constexpr const char* kFile = "mtp.safetensors";
constexpr const char* kTarget = "target_fingerprint";
constexpr const char* kTargetWeights = "target_weights";
constexpr double kNormOffset = 1.0;  // Gemma's norms, and Qwen3-Next's

/// Sees everything, where the target has layers that do.
LayerPlan module_plan(const TransformerInfo& target) {
  for (auto plan = target.plan.rbegin(); plan != target.plan.rend(); ++plan) {
    if (plan->window == 0) {
      return head_layer_plan(*plan);
    }
  }
  return head_layer_plan(target.plan.back());
}

LayerFormat layer_format(int64_t module) {
  return {.prefix = fmt::format("mtp.layers.{}.", module), .norm_offset = kNormOffset};
}

/// A module's first matrix: where it is, there is the module.
std::string first_tensor(int64_t module) {
  return layer_format(module).prefix + "self_attn.q_proj.weight";
}

/// What to tell the user, as check_head_target does.
std::string check_target(const std::filesystem::path& folder, const TransformerInfo& target) {
  if (!has_entry(folder / kFile)) {
    return "";
  }
  const SafetensorsFile file(folder / kFile);
  const auto text = [&file](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? "" : found->second;
  };
  return check_head_target({.fingerprint = text(kTarget), .weights = text(kTargetWeights)}, target,
                           folder / kFile);
}

}  // namespace

bool has_mtp(const std::filesystem::path& folder) {
  if (is_gguf(folder)) {
    return false;
  }
  const CheckpointTensors tensors = head_tensors(folder, kFile);
  for (const TensorEntry* entry : tensors.tensors()) {
    if (entry->name.rfind("mtp.", 0) == 0) {
      return true;
    }
  }
  return false;
}

int64_t count_mtp_modules(const std::filesystem::path& folder) {
  if (!has_mtp(folder)) {
    return 0;
  }
  const CheckpointTensors tensors = head_tensors(folder, kFile);
  int64_t count = 1;  // its name is checked when it is loaded
  while (tensors.find(first_tensor(count)) != nullptr) {
    ++count;
  }
  return count;
}

std::shared_ptr<MtpHead> load_mtp_head(const std::filesystem::path& folder,
                                       const TransformerInfo& target,
                                       std::optional<at::ScalarType> dtype) {
  if (!has_mtp(folder)) {
    throw WeightsError(fmt::format(
        "{}: this checkpoint has no multi-token-prediction modules (tensors 'mtp.*', or {}). Use a "
        "checkpoint that was trained with them, or another drafter.",
        folder.string(), kFile));
  }
  std::string note = check_target(folder, target);
  const TransformerConfig& config = target.config;
  const int64_t hidden = config.hidden_size;
  TensorSource source(head_tensors(folder, kFile), target.place);
  const std::vector<int64_t> fc_shape = {hidden, 2 * hidden};
  const at::ScalarType matrix =
      plain_dtype(dtype, source.stored_dtype("mtp.fc.weight", fc_shape), target);
  const auto norm = [&](const char* name) {
    return source.load(name, {hidden}, target.compute_dtype()) + kNormOffset;
  };
  auto head = std::make_shared<MtpHead>();
  head->note = std::move(note);
  head->fc = source.load("mtp.fc.weight", fc_shape, matrix);
  head->embedding_norm = norm("mtp.pre_fc_norm_embedding.weight");
  head->hidden_norm = norm("mtp.pre_fc_norm_hidden.weight");
  head->norm = norm("mtp.norm.weight");
  const auto module = [&](int64_t index) {
    head->layers.push_back(
        {module_plan(target),
         load_layer<Tensor>(source, layer_format(index), module_plan(target), hidden, matrix),
         config.rms_norm_eps});
  };
  module(0);
  for (int64_t index = 1; source.has(first_tensor(index)); ++index) {
    module(index);
  }
  // Copies of the target's tables, which the modules share.
  source.skip("mtp.embed_tokens.weight", {config.vocab_size, hidden});
  source.skip("mtp.lm_head.weight", {config.vocab_size, hidden});
  source.check_all_taken("mtp.");
  head->fingerprint = fmt::format("{:016x}", source.hash());
  return head;
}

void save_mtp_head(const MtpHead& head, const TransformerInfo& target,
                   const std::filesystem::path& folder, at::ScalarType dtype) {
  std::filesystem::create_directories(folder);
  TensorWriter writer(dtype);
  writer.add("mtp.fc.weight", head.fc);
  writer.add("mtp.pre_fc_norm_embedding.weight", head.embedding_norm - kNormOffset);
  writer.add("mtp.pre_fc_norm_hidden.weight", head.hidden_norm - kNormOffset);
  writer.add("mtp.norm.weight", head.norm - kNormOffset);
  for (size_t i = 0; i < head.layers.size(); ++i) {
    write_layer(writer, layer_format(static_cast<int64_t>(i)), head.layers[i].plan,
                head.layers[i].weights);
  }
  writer.write(folder / kFile,
               {{kTarget, target.fingerprint}, {kTargetWeights, target.weights_fingerprint}});
}

std::shared_ptr<MtpHead> random_mtp_head(const TransformerInfo& target, int64_t modules,
                                         const RandomWeightsOptions& options) {
  RandomTensors random(options);
  const int64_t hidden = target.config.hidden_size;
  auto head = std::make_shared<MtpHead>();
  head->fc = random.matrix(hidden, 2 * hidden);
  head->embedding_norm = random.norm(hidden);
  head->hidden_norm = random.norm(hidden);
  head->norm = random.norm(hidden);
  for (int64_t i = 0; i < modules; ++i) {
    head->layers.push_back({module_plan(target), random_layer(random, module_plan(target), hidden),
                            target.config.rms_norm_eps});
  }
  return head;
}

std::vector<Tensor*> parameters(MtpHead& head) {
  std::vector<Tensor*> all = {&head.fc, &head.embedding_norm, &head.hidden_norm, &head.norm};
  for (HeadLayer& layer : head.layers) {
    const std::vector<Tensor*> more = parameters(layer);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace specdec
