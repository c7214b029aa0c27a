#include "experiments/certify/certify_models.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/gemma/weights.h"
#include "core/families/model.h"
#include "core/families/recurrent_gemma/config.h"
#include "core/transformer/random_weights.h"
#include "decoders/grammar_correction.h"
#include "experiments/run/experiment_config.h"

namespace specdec {
namespace {

/// The config.json of a Gemma 3 that is small enough to enumerate.
std::string tiny_config() {
  return fmt::format(R"({{
    "model_type": "gemma3_text", "vocab_size": {}, "hidden_size": 8, "intermediate_size": 8,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "query_pre_attn_scalar": 4, "max_position_embeddings": 64, "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention"], "rope_theta": 10000.0,
    "bos_token_id": 0, "eos_token_id": []}})",
                     CertifyModels::kVocab);
}

/// The config.json of a RecurrentGemma: two layers that keep states and one that attends, within
/// the same window.
std::string tiny_recurrent_config() {
  return fmt::format(R"({{
    "model_type": "recurrent_gemma", "vocab_size": {}, "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 64, "attention_window_size": 4, "bos_token_id": 0,
    "eos_token_id": []}})",
                     CertifyModels::kVocab);
}

void save_random(const ModelDescription& model, const std::string& config,
                 const std::filesystem::path& folder, uint64_t seed) {
  save_gemma(*random_model(model, {.seed = seed}), config, folder, at::kFloat);
}

}  // namespace

ScratchFolder::ScratchFolder() {
  auto name = (std::filesystem::temp_directory_path() / "specdec_certify_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error("cannot make a temporary folder: " + name +
                "; set TMPDIR to one that can be "
                "written");
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

CertifyModels::CertifyModels(uint64_t seed, const WriteFiles& write_files)
    : loader_({.dtype = "float64", .device = "cpu", .max_length = 0}) {
  constexpr const char* kWhere = "the certifier's model";
  const std::string config = tiny_config();
  const ModelDescription model = parse_gemma_config(config, kWhere);
  save_random(model, config, folder_.path() / "target", 2 * seed);
  save_random(model, config, folder_.path() / "draft", 2 * seed + 1);
  const std::string recurrent = tiny_recurrent_config();
  save_random(parse_recurrent_gemma_config(recurrent, kWhere), recurrent,
              folder_.path() / "recurrent_draft", 2 * seed + 1);
  if (write_files) {
    write_files(folder_.path(), seed);
  }
  target_ = loader_.load(folder_.path() / "target");
  reference_ = loader_.load(folder_.path() / "target");
}

std::unique_ptr<DecodingStrategy> CertifyModels::build(const std::string& yaml,
                                                       const Components& components,
                                                       const Task& task) {
  const auto errors = std::make_shared<ConfigErrors>();
  const auto text = replace_all(yaml, "<folder>", folder_.path().string());
  const ConfigNode node(parse_yaml(text, "certify", false), errors);
  const RunPlan plan{components,
                     &catalog_.read(folder_.path() / "target"),
                     catalog_,
                     task.sampling,
                     task.stop.max_new_tokens,
                     true,
                     task.constraint.grammar != nullptr};
  const auto strategy = read_strategy(node, plan, components);
  errors->throw_if_any();
  BuildContext context{*target_, loader_, [](const std::string& name, LanguageModel&) {
                         return made_up_cost_curve(name);
                       }};
  auto made = strategy.make(context);
  return task.corrected ? std::make_unique<CorrectedDecoding>(
                              std::move(made), CorrectionOptions{Correction::kRejection, 1})
                        : std::move(made);
}

NextLogits CertifyModels::target_logits() {
  return [this](TokenSpan history) {
    auto& logits = logits_[{history.begin(), history.end()}];
    if (logits.empty()) {
      const Tensor row = reference_->prefill_get_last_logits(history).contiguous();
      const auto* values = row.const_data_ptr<double>();
      logits.assign(values, values + row.numel());
    }
    return logits;
  };
}

CostCurve made_up_cost_curve(const std::string& name) {
  const double base = name == "target" ? 1e-3 : 1e-5;
  CostCurve curve;
  for (const int64_t tokens : {1, 64}) {
    curve.points.push_back({tokens, 0, base * (1.0 + 0.01 * static_cast<double>(tokens))});
  }
  return curve;
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace specdec
