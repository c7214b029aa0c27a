#include "experiments/train/answer_plan.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/model.h"
#include "experiments/config/config_file.h"
#include "experiments/config/config_node.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

const Range<int64_t> kTokens{1, 1 << 20};

ModelOptions read_target_options(const ConfigNode& node) {
  ModelOptions options;
  options.dtype = node.get<std::string>("dtype", "");
  options.activations = node.get<std::string>("activations", "");
  note_error(node, "dtype", [&] { (void)parse_dtype(options.dtype); });
  note_error(node, "activations", [&] { (void)parse_activations(options.activations); });
  return options;
}

/// Files named in a list, looked up as ConfigNode::require_path does.
std::vector<fs::path> read_files(const ConfigNode& node, const std::string& key,
                                 const fs::path& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : node.get_list<std::string>(key, {})) {
    const fs::path beside = folder / name;
    files.push_back(fs::exists(name) || !fs::exists(beside) ? fs::path(name) : beside);
    if (!fs::is_regular_file(files.back())) {
      node.fail(key, fmt::format("names {}, which is no file", name));
    }
  }
  return files;
}

void check_target(const ConfigNode& node, const AnswerPlan& plan) {
  if (plan.target.empty()) {
    return;
  }
  note_error(node, "layers", [&] {
    const TransformerConfig config = describe_model(plan.target).config;
    const int64_t layers = config.num_layers;
    if (plan.max_length > config.max_position_embeddings) {
      node.fail("max_length", fmt::format("is {}, more than the target takes ({})", plan.max_length,
                                          config.max_position_embeddings));
    }
    for (const int64_t layer : plan.layers) {
      if (layer >= layers) {
        node.fail("layers", fmt::format("names layer {}, but the target has layers 0 to {}", layer,
                                        layers - 1));
      }
    }
  });
}

void check_lengths(const ConfigNode& node, AnswerPlan& plan) {
  if (plan.text_tokens.size() != 2 || plan.text_tokens[0] > plan.text_tokens[1]) {
    node.fail("text_tokens", "should be [fewest, most]");
    return;
  }
  if (plan.text_tokens[1] + plan.max_answer_tokens >= plan.max_length) {
    node.fail("max_length",
              fmt::format("is {}, too little for texts of {} tokens with answers of "
                          "{} (max_answer_tokens)",
                          plan.max_length, plan.text_tokens[1], plan.max_answer_tokens));
  }
  if (plan.own_prompts > 0.0 && !plan.chat) {
    node.fail("own_prompts", "should be 0 where chat is false: a base model writes no user turns");
  }
  if (plan.own_prompts < 1.0 && plan.texts.empty()) {
    node.fail("texts", "names none; with own_prompts: 1 the model writes all prompts itself");
  }
}

}  // namespace

AnswerPlan load_answer_plan(const fs::path& file, const std::vector<std::string>& overrides) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(load_config(file, overrides, *errors), errors, file.parent_path());
  AnswerPlan plan;
  plan.out = node.require<std::string>("out");
  const ConfigNode target = node.child("target");
  plan.target = target.require_path("weights");
  plan.target_options = read_target_options(target);
  plan.layers = node.get_list<int64_t>("layers", {}, {0, 1023});
  plan.seed = node.get<uint64_t>("seed", plan.seed);
  plan.prompts = node.get<int64_t>("prompts", plan.prompts, kTokens);
  plan.rows = node.get<int64_t>("rows", plan.rows, {1, 256});
  plan.chat = node.get<bool>("chat", plan.chat);
  plan.own_prompts =
      node.get<double>("own_prompts", plan.chat ? plan.own_prompts : 0.0, {0.0, 1.0});
  plan.openings = node.get_list<std::string>("openings", {});
  plan.texts = read_files(node, "texts", file.parent_path());
  plan.text_tokens = node.get_list<int64_t>("text_tokens", plan.text_tokens, kTokens);
  plan.exclude = read_files(node, "exclude", file.parent_path());
  plan.exclude_run = node.get<int64_t>("exclude_run", plan.exclude_run, kTokens);
  plan.max_user_tokens = node.get<int64_t>("max_user_tokens", plan.max_user_tokens, kTokens);
  plan.max_answer_tokens = node.get<int64_t>("max_answer_tokens", plan.max_answer_tokens, kTokens);
  plan.max_length = node.get<int64_t>("max_length", plan.max_length, kTokens);
  check_target(node, plan);
  check_lengths(node, plan);
  node.refuse_unknown_keys();
  errors->throw_if_any();
  return plan;
}

bool describes_answers(const std::filesystem::path& file,
                       const std::vector<std::string>& overrides) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(load_config(file, overrides, *errors), errors);
  return node.has("target") && !node.has("head") && !node.has("data") && !node.has("strategies") &&
         !node.has("model");
}

std::string answer_identity(const AnswerPlan& plan, const TransformerInfo& target) {
  const auto names = [](const std::vector<fs::path>& files) {
    std::vector<std::string> out;
    for (const fs::path& file : files) {
      out.push_back(fmt::format("{} ({} bytes)", file.filename().string(), fs::file_size(file)));
    }
    return out;
  };
  nlohmann::json out = {{"target", target.fingerprint},
                        {"hidden_size", target.config.hidden_size},
                        {"dtype", plan.target_options.dtype},
                        {"activations", plan.target_options.activations},
                        {"layers", plan.layers},
                        {"seed", plan.seed},
                        {"own_prompts", plan.own_prompts},
                        {"texts", names(plan.texts)},
                        {"text_tokens", plan.text_tokens},
                        {"exclude", names(plan.exclude)},
                        {"exclude_run", plan.exclude_run},
                        {"max_user_tokens", plan.max_user_tokens},
                        {"max_answer_tokens", plan.max_answer_tokens},
                        {"max_length", plan.max_length}};
  if (!plan.chat) {
    out["chat"] = false;
  }
  if (!plan.openings.empty()) {
    out["openings"] = plan.openings;
  }
  if (!target.config.suppressed_ids.empty()) {
    out["suppressed"] = target.config.suppressed_ids;
  }
  return out.dump(2) + "\n";
}

}  // namespace specdec
