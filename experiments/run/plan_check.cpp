#include "experiments/run/plan_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "experiments/components/cache_checks.h"
#include "experiments/run/arms.h"
#include "experiments/run/sampling_config.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

constexpr size_t kNamedPrompts = 5;

/// Tokens of the prompts' first turns against a context.
struct Lengths {
  int64_t context = 0;
  int64_t most = 0;                   ///< the longest context that the model could be given
  int64_t fitting = 0;                ///< prompts that are run
  int64_t cut = 0;                    ///< of these: max_new_tokens reach beyond the context
  std::vector<std::string> too_long;  ///< "81 (1500 tokens)": beyond the context
  LongestText longest;                ///< of those that are run
};

Lengths measure_prompts(const ExperimentConfig& config, const ModelFiles& target) {
  Lengths lengths;
  lengths.context = max_length_of(config.model, target.config);
  lengths.most = target.config.max_position_embeddings;
  for (const Prompt& prompt : config.prompts.prompts) {
    Item item{&prompt};
    std::vector<ChatTurn> history;
    const bool fits = encode_item(config, target, item, history);
    const auto size = static_cast<int64_t>(item.tokens.size());
    const int64_t limit = config.prompts.max_prompt_tokens;
    lengths.fitting += fits ? 1 : 0;
    if (fits && size > lengths.longest.prompt_tokens) {
      lengths.longest = {prompt.id, size,
                         std::min(config.stop.max_new_tokens, lengths.context - size)};
    }
    if (fits) {
      lengths.cut += size + config.stop.max_new_tokens > lengths.context ? 1 : 0;
    } else if (limit == 0 || size <= limit) {
      lengths.too_long.push_back(fmt::format("{} ({} tokens)", prompt.id, size));
    }
  }
  return lengths;
}

std::string too_long_text(const Lengths& lengths, size_t prompts) {
  auto names = lengths.too_long;
  const bool more = names.size() > kNamedPrompts;
  names.resize(std::min(names.size(), kNamedPrompts));
  const std::string advice =
      lengths.context < lengths.most
          ? fmt::format("Raise model.max_length (this model takes up to {})", lengths.most)
          : "This model takes no longer ones: shorten them";
  return fmt::format(
      "prompts: {} of {} do not fit the model's context of {} tokens and would be left out: {}{}. "
      "{}, or leave them out with prompts.max_prompt_tokens",
      lengths.too_long.size(), prompts, lengths.context, fmt::join(names, ", "),
      more ? ", ..." : "", advice);
}

/// Keys of the prompts file that mean nothing here.
std::string unread_keys_text(const ExperimentConfig& config) {
  std::map<std::string, int64_t> counts;
  for (const Prompt& prompt : config.prompts.prompts) {
    for (const auto& key : prompt.unread_keys) {
      ++counts[key];
    }
  }
  std::vector<std::string> texts;
  for (const auto& [key, count] : counts) {
    texts.push_back(fmt::format("'{}' ({} prompts)", one_line(key, 40), count));
  }
  return texts.empty() ? ""
                       : fmt::format("{}: these keys are not read: {}",
                                     config.prompts.file.string(), fmt::join(texts, ", "));
}

/// Warns of it once.
void add_note(const std::string& note, PlanCheck& check) {
  if (std::find(check.warnings.begin(), check.warnings.end(), note) == check.warnings.end()) {
    check.warnings.push_back(note);
  }
}

/// Whether the caches of the target and of the strategies' drafters have room for the longest text,
/// and their folders for their pages.
void check_caches(const Group& group, const ModelFiles& target, const LongestText& longest,
                  PlanCheck& check) {
  const ExperimentConfig& config = *group.config;
  std::vector<PlannedCache> caches = {
      planned_cache("model.cache", config.model.cache, target.plan, target.config, config.model)};
  for (const StrategyConfig& strategy : config.strategies) {
    caches.insert(caches.end(), strategy.notes.draft_caches.begin(),
                  strategy.notes.draft_caches.end());
  }
  const std::string at = group.name.empty() ? "" : group.name + ": ";
  for (const PlannedCache& cache : caches) {
    if (const std::string lacking = cache.is_own ? lacking_room(cache, longest) : "";
        !lacking.empty()) {
      check.mistakes.push_back(at + lacking);
    }
  }
  const DiskNotes disks = lacking_disks(caches);
  for (const std::string& mistake : disks.mistakes) {
    check.mistakes.push_back(at + mistake);
  }
  for (const std::string& warning : disks.warnings) {
    add_note(warning, check);
  }
}

void check_group(const Group& group, const ModelFiles& target, PlanCheck& check) {
  const auto& config = *group.config;
  const auto lengths = measure_prompts(config, target);
  const size_t prompts = config.prompts.prompts.size();
  const auto at = group.name.empty() ? "" : group.name + ": ";
  if (config.stop.max_new_tokens >= lengths.context) {
    check.mistakes.push_back(fmt::format(
        "{}max_new_tokens: {} is more than the model can write: it takes {} tokens of prompt and "
        "output (model.max_length)",
        at, config.stop.max_new_tokens, lengths.context));
  } else if (lengths.cut > 0) {
    check.warnings.push_back(
        fmt::format("{}{} of {} prompts leave less than max_new_tokens ({}) of the context of {} "
                    "tokens: their texts may end with context_full",
                    at, lengths.cut, prompts, config.stop.max_new_tokens, lengths.context));
  }
  if (!lengths.too_long.empty()) {
    check.mistakes.push_back(at + too_long_text(lengths, prompts));
  } else if (lengths.fitting == 0) {
    check.mistakes.push_back(
        fmt::format("{}prompts.max_prompt_tokens: leaves out all {} prompts", at, prompts));
  }
  check_caches(group, target, lengths.longest, check);
  check.left_out.push_back(static_cast<int64_t>(prompts) - lengths.fitting);
}

/// What a target's files and, where strategies draft, its cache make a user know.
std::vector<std::string> notes_of(const ExperimentConfig& config, const ModelFiles& target) {
  std::vector<std::string> notes = target.notes;
  const std::string beside = tiers_beside_target(config.model.cache, config.model.device);
  const bool drafts =
      std::any_of(config.strategies.begin(), config.strategies.end(),
                  [](const StrategyConfig& strategy) { return !strategy.verifier.empty(); });
  if (drafts && !beside.empty()) {
    notes.push_back("model.cache: " + beside);
  }
  return notes;
}

}  // namespace

PlanCheck check_plan(const ExperimentPlan& plan) {
  PlanCheck check;
  for (const Group& group : group_arms(plan)) {
    const ModelFiles& target = plan.models->read(group.config->weights);
    check_group(group, target, check);
    for (const std::string& note : notes_of(*group.config, target)) {
      add_note(note, check);
    }
  }
  if (auto unused = unused_sampling_text(plan); !unused.empty()) {
    check.warnings.push_back(std::move(unused));
  }
  if (auto unread = unread_keys_text(plan.points.front().config); !unread.empty()) {
    check.warnings.push_back(std::move(unread));
  }
  return check;
}

std::string unused_sampling_text(const ExperimentPlan& plan) {
  const bool draws =
      std::any_of(plan.points.begin(), plan.points.end(),
                  [](const SweepPoint& point) { return !point.config.sampling.greedy(); });
  std::set<std::string> names;
  for (const SweepPoint& point : plan.points) {
    for (std::string& name : unused_sampling(point.config.sampling, "sampling.")) {
      names.insert(std::move(name));
    }
  }
  return draws || names.empty()
             ? ""
             : fmt::format(
                   "{}: no effect at temperature 0, where the most likely token is taken; "
                   "set sampling.temperature to draw tokens",
                   fmt::join(names, ", "));
}

}  // namespace specdec
