#include "experiments/run/arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "experiments/config/yaml_writer.h"

namespace specdec {
GenerationKey Item::key(const Arm& arm) const {
  const bool several = prompt->turns.size() > 1;
  return {arm.sweep_point, arm.config->name,
          several ? fmt::format("{}/{}", prompt->id, turn + 1) : prompt->id, repeat};
}

std::vector<Group> group_arms(const ExperimentPlan& plan) {
  std::vector<Group> groups;
  std::map<std::string, size_t> group_of;
  std::set<std::pair<size_t, std::string>> seen;
  for (const auto& point : plan.points) {
    const auto [found, is_new] = group_of.emplace(point.config.workload, groups.size());
    if (is_new) {
      groups.push_back({.config = &point.config, .name = point.label});
    }
    for (const auto& strategy : point.config.strategies) {
      if (seen.emplace(found->second, strategy.yaml).second) {
        groups[found->second].arms.push_back({.sweep_point = point.label, .config = &strategy});
      }
    }
  }
  return groups;
}

std::string model_key(const ExperimentConfig& config) {
  std::string key =
      fmt::format("{}|{}|{}", config.weights.string(), config.threads, loading_key(config.model));
  for (const AdapterChoice& adapter : config.model.adapters) {
    key += fmt::format("|{}={}", adapter.name, adapter_text(adapter));
  }
  return key;
}

std::vector<AdapterChoice> common_adapters(const ExperimentConfig& config) {
  const auto& prompts = config.prompts.prompts;
  const auto other = std::find_if(prompts.begin(), prompts.end(), [&](const Prompt& prompt) {
    return prompt.adapters != prompts.front().adapters;
  });
  if (other != prompts.end()) {
    throw ConfigError(
        fmt::format("{}: prompt '{}' asks for other adapters than '{}', and here one model reads "
                    "all prompts: choose those of one adapter with prompts.categories",
                    config.prompts.file.string(), other->id, prompts.front().id));
  }
  return adapters_for(config.model.adapters,
                      prompts.empty() ? std::vector<std::string>() : prompts.front().adapters);
}

std::vector<std::string> model_keys_of_sweep(const ExperimentPlan& plan) {
  const bool several =
      std::any_of(plan.points.begin(), plan.points.end(), [&](const SweepPoint& point) {
        return model_key(point.config) != model_key(plan.points.front().config);
      });
  std::vector<std::string> keys;
  for (const auto& key : plan.sweep_keys) {
    if (several && (key == "threads" || key == "model" || key.starts_with("model."))) {
      keys.push_back(key);
    }
  }
  return keys;
}

size_t count_turns(const ExperimentConfig& config, const Prompt& prompt) {
  return config.prompts.multi_turn ? std::max<size_t>(1, prompt.turns.size()) : 1;
}

std::vector<Item> items_of(const Group& group) {
  const auto& config = *group.config;
  std::vector<Item> items;
  for (const auto& prompt : config.prompts.prompts) {
    for (size_t turn = 0; turn < count_turns(config, prompt); ++turn) {
      for (int64_t repeat = 0; repeat < config.repeats; ++repeat) {
        items.push_back({&prompt, turn, repeat});
      }
    }
  }
  return items;
}

bool encode_item(const ExperimentConfig& config, const ModelFiles& target, Item& item,
                 std::vector<ChatTurn>& history) {
  if (item.prompt->turns.empty()) {
    item.tokens = item.prompt->tokens;
  } else {
    history.push_back({"user", item.prompt->turns[item.turn]});
    const std::string& tools =
        config.grammar && item.prompt->tools.empty() ? config.grammar->tools : item.prompt->tools;
    item.tokens =
        encode_prompt(*target.tokenizer, history, config.prompts.chat, target.config.bos_id, tools);
  }
  const auto size = static_cast<int64_t>(item.tokens.size());
  const int64_t limit = config.prompts.max_prompt_tokens;
  return size < max_length_of(config.model, target.config) && (limit == 0 || size <= limit);
}

std::vector<std::string> prefix_notes(const std::vector<Group>& groups) {
  std::vector<std::string> notes;
  std::set<const PrefixStore*> noted;
  for (const Group& group : groups) {
    for (const Arm& arm : group.arms) {
      if (arm.prefixes == nullptr || !noted.insert(arm.prefixes.get()).second) {
        continue;
      }
      const PrefixStatistics counts = arm.prefixes->statistics();
      const std::string name =
          group.config->prefix_cache.shared ? "all strategies" : arm.config->name;
      std::string note = fmt::format(
          "Prefix cache of {}{}{}: {} of {} texts began with a known one, {} of {} prompt tokens "
          "were not read again; {} MB at the end, {} texts left for want of room",
          name, arm.sweep_point.empty() ? "" : " at ", arm.sweep_point, counts.hits, counts.prompts,
          counts.reused_tokens, counts.prompt_tokens, arm.prefixes->bytes() >> 20U, counts.evicted);
      if (counts.bypassed > 0) {
        note += fmt::format(
            "; {} were read whole, since the drafter follows their hidden states, which are not "
            "kept (prefix_cache.states), or the model has recurrent layers",
            counts.bypassed);
      }
      if (group.config->repeats > 1) {
        note +=
            "; from the second repeat on prompts were known whole, so prefills are those of "
            "repeated requests";
      }
      notes.push_back(note + ".");
    }
  }
  return notes;
}

std::string reply_text(const Generation& generation, const Tokenizer* tokenizer) {
  auto tokens = generation.tokens;
  const auto reason = generation.stop_reason;
  if (reason == StopReason::kEndOfSequence || reason == StopReason::kStopId) {
    tokens.pop_back();
  }
  return decode_text(tokenizer, tokens);
}

std::string run_config_text(const ExperimentPlan& plan, const std::vector<Group>& groups,
                            const std::filesystem::path& folder) {
  std::string text = write_yaml(*plan.root.resolved(folder));
  for (const auto& group : groups) {
    const auto& prompts = group.config->prompts.prompts;
    text += fmt::format("# prompts{}{}: {}, hash {:016x}\n", group.name.empty() ? "" : " at ",
                        group.name, prompts.size(), hash_prompts(prompts));
  }
  return text;
}

uint64_t hash_prompts(const std::vector<Prompt>& prompts) {
  uint64_t hash = kHashStart;
  const auto add = [&hash](const void* data, size_t size) { hash = fnv1a(hash, data, size); };
  for (const auto& prompt : prompts) {
    for (const auto& text : prompt.turns) {
      add(text.c_str(), text.size() + 1);
    }
    add(prompt.tokens.data(), prompt.tokens.size() * sizeof(Token));
    add(prompt.id.c_str(), prompt.id.size() + 1);
    add(prompt.tools.data(), prompt.tools.size());
    for (const auto& adapter : prompt.adapters) {
      add(adapter.c_str(), adapter.size() + 1);
    }
    for (const auto& key : prompt.answer_keys) {
      // Scores by other keys must not be mixed; prompts without keys keep their hash.
      const std::string reference = key ? key->reference : "";
      add(&"-nrp"[key ? 1 + static_cast<size_t>(key->scorer) : 0], 1);
      add(reference.c_str(), reference.size() + 1);
    }
  }
  return hash;
}

}  // namespace specdec
