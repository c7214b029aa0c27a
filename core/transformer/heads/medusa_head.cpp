#include "core/transformer/heads/medusa_head.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/layer_runner.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/tensor_writer.h"

namespace specdec {
namespace {

constexpr int64_t kMaxHeads = 64;
constexpr int64_t kMaxLayers = 16;

std::string block_name(int64_t head, int64_t layer) {
  return fmt::format("{}.{}.linear.", head, layer);
}

std::string output_name(const MedusaConfig& config, int64_t head) {
  return fmt::format("{}.{}.weight", head, config.num_layers);
}

int64_t at_most(const JsonKeys& keys, const char* key, int64_t most) {
  const int64_t value = keys.positive(key);
  if (value > most) {
    keys.fail(key, fmt::format("is {}, more than {}", value, most));
  }
  return value;
}

}  // namespace

MedusaConfig read_medusa_config(const std::filesystem::path& folder) {
  const std::string where = (folder / "config.json").string();
  const nlohmann::json object = parse_json_object(read_head_config(folder), where);
  const JsonKeys keys(object, where);
  if (const std::string kind = head_kind(keys); kind.empty()) {
    keys.fail(
        "medusa_num_heads",
        "is missing, so this is no config of Medusa's heads. A whole model drafts with drafter "
        "type draft_model");
  } else if (kind != "medusa") {
    keys.fail("head_type",
              fmt::format("says that this is a head of type {0}; use drafter type {0}", kind));
  }
  MedusaConfig config;
  config.num_heads = at_most(keys, "medusa_num_heads", kMaxHeads);
  config.num_layers = at_most(keys, "medusa_num_layers", kMaxLayers);
  config.hidden_size = keys.has("hidden_size") ? keys.positive("hidden_size") : 0;
  config.vocab_size = keys.has("vocab_size") ? keys.positive("vocab_size") : 0;
  config.share_lm_head = keys.boolean("share_lm_head", false);
  config.draft_vocab_size = keys.has("draft_vocab_size") ? keys.positive("draft_vocab_size") : 0;
  if (config.draft_vocab_size > 0 && !config.share_lm_head) {
    keys.fail("draft_vocab_size",
              "is for heads that end in the target's own head: set share_lm_head to true");
  }
  config.trained_for = read_head_target(keys);
  return config;
}

MedusaConfig read_medusa_config(const std::filesystem::path& folder,
                                const TransformerConfig& target) {
  MedusaConfig config = read_medusa_config(folder);
  config.hidden_size = config.hidden_size > 0 ? config.hidden_size : target.hidden_size;
  config.vocab_size = config.vocab_size > 0 ? config.vocab_size : target.vocab_size;
  HeadTarget shapes = config.trained_for;
  shapes.hidden_size = config.hidden_size;  // published heads do not say more
  shapes.vocab_size = config.vocab_size;
  check_head_shapes(shapes, target, folder);
  return config;
}

MedusaHead new_medusa_head(const MedusaConfig& config, const TransformerTensors& target,
                           at::ScalarType dtype) {
  MedusaHead head{
      .config = config, .blocks = {}, .outputs = {}, .target_ids = {}, .fingerprint = {}};
  head.config.hidden_size = target.config.hidden_size;
  head.config.vocab_size = target.config.vocab_size;
  head.config.trained_for = head_target(target);
  const auto options = at::TensorOptions(dtype).device(target.place.device);
  const int64_t hidden = head.config.hidden_size;
  for (int64_t k = 0; k < config.num_heads; ++k) {
    auto& blocks = head.blocks.emplace_back();
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      blocks.push_back({at::zeros({hidden, hidden}, options), at::zeros({hidden}, options)});
    }
    if (!config.share_lm_head) {
      head.outputs.push_back(target.head.detach().to(dtype).clone());
    }
  }
  return head;
}

Tensor medusa_hidden(const MedusaHead& head, const Tensor& hidden, int64_t index) {
  Tensor x = hidden;
  for (const MedusaBlock& block : head.blocks[static_cast<size_t>(index)]) {
    const auto type = x.scalar_type();
    x = x + at::silu(at::linear(x, block.weight.to(type), block.bias.to(type)));
  }
  return x;
}

MedusaModel::MedusaModel(const MedusaHead& head, std::shared_ptr<const TransformerWeights> target,
                         const TransformerOptions& options)
    : target_(std::move(target)),
      ops_(ops_of(options, *target_)),
      kept_(ops_),
      graphs_(*ops_, options.graphs),
      vocabulary_(draft_vocabulary(head.target_ids, head.config.vocab_size, target_->place.device)),
      rows_(head.target_ids, target_) {
  const auto place = at::TensorOptions(target_->compute_dtype()).device(target_->place.device);
  hidden_ = at::empty({1, target_->config.hidden_size}, place);
  ones_ = at::ones_like(hidden_);
  for (const std::vector<MedusaBlock>& layers : head.blocks) {
    std::vector<Linear>& blocks = blocks_.emplace_back();
    for (const MedusaBlock& block : layers) {
      blocks.push_back(pack(block.weight, head_packing(*target_), block.bias));
    }
  }
  for (const Tensor& output : head.outputs) {
    outputs_.push_back(pack(output, head_packing(*target_)));
  }
}

ForwardResult MedusaModel::device_logits(const Tensor& hidden, int64_t index) const {
  return {.logits = logits(*ops_, hidden.to(target_->place.device), index),
          .sampler = ops_->sampler()};
}

Tensor MedusaModel::logits(Ops& ops, const Tensor& hidden, int64_t index) const {
  const auto number = static_cast<size_t>(index);
  const Tensor ones = hidden.size(0) == 1 ? ones_ : ones_.expand_as(hidden).contiguous();
  Tensor x = hidden;
  for (const Linear& block : blocks_[number]) {
    const Tensor gate = ops.concat(ops.linear(block, x), ones);
    Tensor next = ops.result(x.size(0), x.size(1), x.options());
    ops.gated_activation(gate, Activation::kSilu, next);
    ops.add(next, x);
    x = next;
  }
  return outputs_.empty() ? rows_.logits(ops, x) : ops.linear(outputs_[number], x);
}

DeviceSampler& MedusaModel::sampler_of(int64_t levels) const {
  SPECDEC_CHECK(samples(), "medusa: these heads draw no drafts, as samples() says");
  SPECDEC_CHECK(levels <= std::ssize(blocks_), "medusa: a draft {} deep by {} heads", levels,
                blocks_.size());
  return *ops_->sampler();
}

int64_t MedusaModel::columns() const {
  return vocabulary_ ? vocabulary_->columns() : target_->config.vocab_size;
}

std::optional<DrawnChain> MedusaModel::draw_chain(const ChainRequest& chain, const Tensor& hidden) {
  ChainRequest own = chain;
  own.vocabulary = vocabulary_ ? &*vocabulary_ : nullptr;
  const auto drawing = sampler_of(chain.count).begin_chain(own, columns());
  draw(steps_of(*drawing, chain.count), hidden);
  return drawing->read();
}

std::optional<DrawnTree> MedusaModel::draw_tree(const TreeRequest& tree, const Tensor& hidden) {
  const int64_t levels = std::ssize(branching_nodes(tree.parents));
  TreeRequest own = tree;
  own.vocabulary = vocabulary_ ? &*vocabulary_ : nullptr;
  const auto drawing = sampler_of(levels).begin_tree(own, columns());
  draw(steps_of(*drawing, tree.parents), hidden);
  return drawing->read(levels);
}

void MedusaModel::draw(const DraftSteps& steps, const Tensor& hidden) {
  ops_->copy(plain_input(hidden, hidden_), hidden_);
  const auto steps_in_order = [&] {
    draw_steps(steps, [&](int64_t step, const Tensor& tokens) {
      kept_.begin();
      const Tensor row = logits(kept_, hidden_, step);  // what all nodes of a level have
      return step == 0 ? row : row.expand({tokens.size(0), row.size(1)});
    });
  };
  if (graphs_.enabled() && steps.fits_graph()) {
    graphs_.run(steps.key, steps_in_order);
  } else {
    steps_in_order();
  }
}

ForwardResult MedusaModel::logits(const Tensor& hidden, int64_t index) const {
  ForwardResult result{.logits = device_logits(hidden, index).logits};
  copy_to_host(*ops_, {}, result);
  return result;
}

CheckpointTensors medusa_tensors(const std::filesystem::path& folder) {
  constexpr const char* kPickled = "medusa_lm_head.pt";
  const char* file = "medusa_lm_head.safetensors";
  return head_tensors(folder,
                      has_entry(folder / file) || !has_entry(folder / kPickled) ? file : kPickled);
}

MedusaHead load_medusa_head(const std::filesystem::path& folder, const TransformerInfo& target,
                            std::optional<at::ScalarType> wanted) {
  MedusaHead head{.config = read_medusa_config(folder, target.config),
                  .blocks = {},
                  .outputs = {},
                  .target_ids = {},
                  .fingerprint = {}};
  const MedusaConfig& config = head.config;
  head.note = check_head_target(config.trained_for, target, folder);
  TensorSource source(medusa_tensors(folder), target.place);
  const std::vector<int64_t> square = {config.hidden_size, config.hidden_size};
  const at::ScalarType dtype =
      plain_dtype(wanted, source.stored_dtype(block_name(0, 0) + "weight", square), target);
  for (int64_t k = 0; k < config.num_heads; ++k) {
    auto& blocks = head.blocks.emplace_back();
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      const std::string name = block_name(k, layer);
      blocks.push_back({source.load(name + "weight", square, dtype),
                        source.load(name + "bias", {config.hidden_size}, dtype)});
    }
    if (!config.share_lm_head) {
      head.outputs.push_back(
          source.load(output_name(config, k), {config.vocab_size, config.hidden_size}, dtype));
    }
  }
  if (config.draft_vocab_size > 0) {
    head.target_ids = load_draft_ids(source, config.draft_vocab_size, config.vocab_size);
  }
  source.check_all_taken();
  head.fingerprint = fmt::format("{:016x}", source.hash());
  return head;
}

void save_medusa_head(const MedusaHead& head, const std::filesystem::path& folder,
                      at::ScalarType dtype) {
  std::filesystem::create_directories(folder);
  const MedusaConfig& config = head.config;
  TensorWriter writer(dtype);
  for (int64_t k = 0; k < config.num_heads; ++k) {
    const auto& blocks = head.blocks[static_cast<size_t>(k)];
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      writer.add(block_name(k, layer) + "weight", blocks[static_cast<size_t>(layer)].weight);
      writer.add(block_name(k, layer) + "bias", blocks[static_cast<size_t>(layer)].bias);
    }
    if (!config.share_lm_head) {
      writer.add(output_name(config, k), head.outputs[static_cast<size_t>(k)]);
    }
  }
  write_draft_ids(writer, head.target_ids, config.vocab_size);
  writer.write(folder / "model.safetensors", {{"format", "pt"}});
  nlohmann::json out = {{"head_type", "medusa"},
                        {"medusa_num_heads", config.num_heads},
                        {"medusa_num_layers", config.num_layers},
                        {"hidden_size", config.hidden_size},
                        {"vocab_size", config.vocab_size},
                        {"share_lm_head", config.share_lm_head},
                        {"trained_for", head_target_json(config.trained_for)}};
  if (head.target_ids.defined()) {
    out["draft_vocab_size"] = head.target_ids.numel();
  }
  write_file(folder / "config.json", out.dump(2) + "\n");
}

}  // namespace specdec
