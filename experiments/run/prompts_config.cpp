#include "experiments/run/prompts_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/chat.h"

namespace specdec {
namespace {

/// The keys that choose among the prompts of the file.
struct Selection {
  std::vector<std::string> categories;
  int64_t skip = 0;
  int64_t per_category = 0;  ///< 0 = all
  int64_t limit = 0;         ///< 0 = all
};

Selection read_selection(const ConfigNode& node) {
  Selection selection;
  selection.categories = node.get_list<std::string>("categories", {});
  selection.skip = node.get<int64_t>("skip", 0, {0, kMaxTokens});
  selection.per_category = node.get<int64_t>("per_category", 0, {0, kMaxTokens});
  selection.limit = node.get<int64_t>("limit", 0, {0, kMaxTokens});
  return selection;
}

void keep_categories(const std::vector<std::string>& categories, const ConfigNode& node,
                     std::vector<Prompt>& prompts) {
  std::set<std::string> known;
  for (const auto& prompt : prompts) {
    known.insert(prompt.category);
  }
  for (const auto& category : categories) {
    if (!known.contains(category)) {
      node.fail("categories", fmt::format("no prompt has the category '{}'; the file has: {}",
                                          category, fmt::join(known, ", ")));
    }
  }
  if (!categories.empty()) {
    std::erase_if(prompts, [&](const Prompt& prompt) {
      return std::find(categories.begin(), categories.end(), prompt.category) == categories.end();
    });
  }
}

std::vector<Prompt> select_prompts(std::vector<Prompt> prompts, const Selection& selection,
                                   const ConfigNode& node) {
  keep_categories(selection.categories, node, prompts);
  if (selection.skip > 0 && selection.skip >= std::ssize(prompts)) {
    node.fail("skip", fmt::format("{} prompts are skipped of {}", selection.skip, prompts.size()));
  } else {
    prompts.erase(prompts.begin(), prompts.begin() + selection.skip);
  }
  if (selection.per_category > 0) {
    std::map<std::string, int64_t> kept;
    std::erase_if(prompts, [&](const Prompt& prompt) {
      return ++kept[prompt.category] > selection.per_category;
    });
  }
  if (selection.limit > 0 && std::ssize(prompts) > selection.limit) {
    prompts.resize(static_cast<size_t>(selection.limit));
  }
  return prompts;
}

/// Takes tools out of prompts without a chat template, since templates alone are given tools.
void set_tools_aside(std::vector<Prompt>& prompts) {
  for (Prompt& prompt : prompts) {
    if (!prompt.tools.empty()) {
      prompt.tools.clear();
      prompt.unread_keys.emplace_back("tools");
    }
  }
}

/// Adapters of all prompts that ask for none themselves; "" = none.
void give_adapters(const std::string& name, const std::vector<AdapterChoice>& all,
                   const ConfigNode& node, PromptsConfig& config) {
  if (!name.empty()) {
    if (const auto reason = unknown_adapter(all, {name}); !reason.empty()) {
      node.fail("adapter", reason);
      return;
    }
  }
  for (Prompt& prompt : config.prompts) {
    if (const auto reason = unknown_adapter(all, prompt.adapters); !reason.empty()) {
      node.fail("file",
                fmt::format("{}: prompt '{}': {}", config.file.string(), prompt.id, reason));
      return;
    }
    if (!prompt.adapters.empty()) {
      prompt.category += fmt::format("{}adapter {}", prompt.category.empty() ? "" : ", ",
                                     fmt::join(prompt.adapters, " + "));
    } else if (!name.empty()) {
      prompt.adapters = {name};
    }
  }
}

/// What the target cannot make of the prompts; "" when all is well.
std::string check_prompts(const PromptsConfig& config, const ModelFiles& target) {
  for (const auto& prompt : config.prompts) {
    for (const Token token : prompt.tokens) {
      if (token >= target.config.vocab_size) {
        return fmt::format("{}: prompt '{}' holds the id {}, but the vocabulary has {} entries",
                           config.file.string(), prompt.id, token, target.config.vocab_size);
      }
    }
    if (!prompt.turns.empty() && target.tokenizer == nullptr) {
      return target.no_text(fmt::format(
          "{}: prompt '{}' is text, but {} has no tokenizer (tokenizer.model or tokenizer.json); "
          "prompts given as 'tokens' need none",
          config.file.string(), prompt.id, target.folder.string()));
    }
  }
  if (config.chat && target.tokenizer != nullptr) {
    (void)encode_chat(*target.tokenizer, {{"user", "?"}});  // throws when it has no turn pieces
  }
  return "";
}

}  // namespace

PromptsConfig read_prompts_config(const ConfigNode& node, const ModelFiles* target,
                                  const std::vector<AdapterChoice>& adapters) {
  PromptsConfig config;
  config.file = node.require_path("file");
  const Selection selection = read_selection(node);
  config.chat = node.get<bool>("chat", false);
  config.multi_turn = node.get<bool>("multi_turn", true);
  config.max_prompt_tokens = node.get<int64_t>("max_prompt_tokens", 0, {0, kMaxTokens});
  const auto adapter = node.has("adapter") ? node.get<std::string>("adapter", "") : "";
  node.ignore("adapter");  // a wrong key still names it
  if (config.file.empty()) {
    return config;
  }
  note_error(node, "file", [&] {
    config.prompts = select_prompts(read_prompts(config.file), selection, node);
    give_adapters(adapter, adapters, node, config);
    if (!config.chat) {
      set_tools_aside(config.prompts);
    }
    const auto message = target == nullptr ? "" : check_prompts(config, *target);
    if (!message.empty()) {
      node.fail("file", message);
    }
  });
  return config;
}

}  // namespace specdec
