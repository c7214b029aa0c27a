#include "experiments/run/experiment.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/metrics/copied_share.h"
#include "experiments/report/example_choice.h"
#include "experiments/run/answer_scoring.h"
#include "experiments/run/arms.h"
#include "experiments/run/experiment_report.h"
#include "experiments/run/finished_run.h"
#include "experiments/run/prompt_grammars.h"
#include "experiments/run/record_order.h"
#include "experiments/run/run_folder.h"
#include "experiments/run/run_setup.h"
#include "experiments/run/schema_validity.h"
#include "experiments/run/text_measures.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

constexpr int64_t kWarmUpTokens = 32;

/// Random numbers of an item, which are the same for all strategies.
CounterRandomness randomness(const ExperimentConfig& config, const Item& item) {
  return CounterRandomness(config.seed, item.prompt->number + static_cast<uint32_t>(item.turn),
                           static_cast<uint32_t>(item.repeat));
}

/// What follows is not measured on texts that strategies have seen.
void forget_texts(const Group& group) {
  for (const Arm& arm : group.arms) {
    for (const auto* strategy : {&arm.strategy, &arm.tracer}) {
      if (*strategy != nullptr) {
        (*strategy)->forget();
      }
    }
  }
}

/// How far a group has come.
struct GroupProgress {
  Group* group = nullptr;
  size_t question = 0;  ///< prompts of all repeats, in order
  int64_t order = 0;    ///< of the next item
  int64_t fitting = 0;  ///< items that were not too long
};

class ExperimentRun {
 public:
  ExperimentRun(const ExperimentPlan& plan, const RunOptions& options, std::ostream& log)
      : plan_(plan),
        options_(options),
        log_(log),
        groups_(group_arms(plan)),
        folder_(options.out, run_config_text(plan, groups_, options.out)),
        setup_(groups_, *plan.models, folder_, options.quiet ? nullptr : &log) {}

  Report run();

 private:
  int64_t count_left() const;
  void score_again();
  void run_groups(Progress& progress);
  void run_alternately(std::vector<GroupProgress>& groups, Progress& progress);
  bool run_question(GroupProgress& at, Progress& progress);
  void warm_up(Group& group, const Item& item);
  void run_item(Group& group, const Item& item, Progress& progress);
  GenerationRecord record(const Group& group, const Arm& arm, const Item& item, bool is_example);
  Request make_request(const Group& group, const Arm& arm, const Item& item, Randomness& random);
  void trace_item(const Group& group, const Item& item);
  std::string reply(const Group& group, const Item& item) const;
  Report make_report();
  /// The grammar that the item's output obeys; without one, nullptr.
  PromptGrammars::Entry grammar(const Group& group, const Item& item);
  const Tokenizer* tokenizer(const ExperimentConfig& config) const {
    return plan_.models->read(config.weights).tokenizer.get();
  }

  const ExperimentPlan& plan_;
  const RunOptions& options_;
  std::ostream& log_;
  std::vector<Group> groups_;
  RunFolder folder_;
  RunSetup setup_;
  LeftOutPrompts left_out_;
  PromptGrammars grammars_;
  SchemaValidity validity_;
  ExampleChoice examples_;
};

Report ExperimentRun::run() {
  if (folder_.resumed() && !options_.quiet) {
    log_ << fmt::format("resuming {}: {} generations are there, {} left\n", folder_.path().string(),
                        folder_.records().size(), count_left());
  }
  std::set<std::filesystem::path> noted;
  for (const Group& group : groups_) {
    if (!options_.quiet && noted.insert(group.config->weights).second) {
      print_notes(plan_.models->read(group.config->weights), log_);
    }
  }
  score_again();
  setup_.load();
  if (count_left() > 0 || !folder_.recorded_environment()) {  // else nothing is measured here
    folder_.write_environment(setup_.environment());
  }
  {
    Progress progress(log_, Progress::choose_style(options_.quiet), count_left());
    run_groups(progress);
  }
  return make_report();
}

/// Generations that are not recorded yet; prompts that will turn out too long are counted too.
int64_t ExperimentRun::count_left() const {
  int64_t count = 0;
  for (const auto& group : groups_) {
    for (const Item& item : items_of(group)) {
      count += std::count_if(group.arms.begin(), group.arms.end(),
                             [&](const Arm& arm) { return !folder_.holds(item.key(arm)); });
    }
  }
  return count;
}

/// A resumed run whose scorer program changed scores the answers that it holds once more.
void ExperimentRun::score_again() {
  std::map<GenerationKey, const GenerationRecord*> scored;
  for (const auto& record : folder_.records()) {
    if (!record.scorer.empty()) {
      scored[record.key] = &record;
    }
  }
  std::vector<GenerationRecord> changed;
  for (const auto& group : groups_) {
    for (const Item& item : scored.empty() ? std::vector<Item>() : items_of(group)) {
      for (const Arm& arm : group.arms) {
        const auto found = scored.find(item.key(arm));
        if (found != scored.end() && has_stale_score(group.config->quality, *found->second)) {
          changed.push_back(*found->second);
          score_answer(group.config->quality, item, changed.back());
        }
      }
    }
  }
  if (changed.empty()) {
    return;
  }
  folder_.replace(changed);
  if (!options_.quiet) {
    log_ << fmt::format("{} answers were scored again: the scorer program has changed\n",
                        changed.size());
  }
}

void ExperimentRun::run_groups(Progress& progress) {
  std::vector<GroupProgress> waiting;
  for (auto& group : groups_) {
    waiting.push_back({.group = &group});
  }
  while (!waiting.empty()) {  // those of the first model, then of the next one
    const TransformerModel* target = waiting.front().group->target.get();
    const auto others = std::stable_partition(
        waiting.begin(), waiting.end(),
        [&](const GroupProgress& each) { return each.group->target.get() == target; });
    std::vector<GroupProgress> running(waiting.begin(), others);
    waiting.erase(waiting.begin(), others);
    run_alternately(running, progress);
  }
}

/// The groups take a question one right after the other, in an order that turns.
void ExperimentRun::run_alternately(std::vector<GroupProgress>& groups, Progress& progress) {
  const c10::InferenceMode guard;
  size_t left = groups.size();
  for (size_t round = 0; left > 0; ++round) {
    left = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      left += run_question(groups[(i + round) % groups.size()], progress) ? 1 : 0;
    }
  }
  for (const GroupProgress& each : groups) {
    const auto& config = *each.group->config;
    if (each.fitting == 0) {
      throw Error(
          fmt::format("no prompt of {} fits: each is longer than prompts.max_prompt_tokens or "
                      "leaves no room in model.max_length ({})",
                      config.prompts.file.string(), each.group->target->max_length()));
    }
  }
}

/// All turns of the group's next prompt; false when there is none left.
bool ExperimentRun::run_question(GroupProgress& at, Progress& progress) {
  Group& group = *at.group;
  const auto& config = *group.config;
  const auto& prompts = config.prompts.prompts;
  if (prompts.empty() || at.question >= prompts.size() * static_cast<size_t>(config.repeats)) {
    return false;
  }
  const auto& prompt = prompts[at.question % prompts.size()];
  const auto repeat = static_cast<int64_t>(at.question / prompts.size());
  if (repeat > 0 && at.question % prompts.size() == 0) {
    forget_texts(group);
  }
  ++at.question;
  const size_t turns = count_turns(config, prompt);
  std::vector<ChatTurn> history;
  for (size_t turn = 0; turn < turns; ++turn) {
    Item item{&prompt, turn, repeat, at.order++};
    if (!encode_item(config, plan_.models->read(config.weights), item, history)) {
      left_out_[group.name].insert(item.key(group.arms.front()).prompt_id);
      break;
    }
    group.loader->set_adapters(*group.target, config.weights,
                               adapters_for(config.model.adapters, prompt.adapters));
    group.target->touch_cache(std::ssize(item.tokens) + config.stop.max_new_tokens);
    if (at.fitting++ == 0) {
      warm_up(group, item);
    }
    run_item(group, item, progress);
    if (turn + 1 < turns) {
      history.push_back({"model", reply(group, item)});
    }
  }
  return true;
}

/// First calls pay for allocations and cold caches; they are not recorded, nor their texts kept.
void ExperimentRun::warm_up(Group& group, const Item& item) {
  for (int64_t i = 0; i < group.config->warm_up; ++i) {
    for (const auto& arm : group.arms) {
      InterruptGuard::check();
      CounterRandomness random = randomness(*group.config, item);
      Request request = make_request(group, arm, item, random);
      request.stop.max_new_tokens = std::min(request.stop.max_new_tokens, kWarmUpTokens);
      (void)arm.strategy->generate(request);
    }
  }
  forget_texts(group);
}

void ExperimentRun::run_item(Group& group, const Item& item, Progress& progress) {
  for (size_t i = 0; i < group.arms.size(); ++i) {
    const Arm& arm = group.arms[(i + static_cast<size_t>(item.order)) % group.arms.size()];
    const auto key = item.key(arm);
    const bool is_example = examples_.takes(key, item.prompt->category);
    if (folder_.holds(key)) {
      continue;
    }
    folder_.append(record(group, arm, item, is_example));
    progress.advance(fmt::format("{} on {}", arm.config->name, key.prompt_id));
  }
  if (group.config->trace) {
    trace_item(group, item);
  }
}

/// Generates and measures; only the generation is timed. What an example's drafts lost is noted.
GenerationRecord ExperimentRun::record(const Group& group, const Arm& arm, const Item& item,
                                       bool is_example) {
  InterruptGuard::check();
  CounterRandomness random = randomness(*group.config, item);
  Request request = make_request(group, arm, item, random);
  request.log_rejected = is_example;
  request.prefixes = arm.prefixes.get();
  GenerationRecord record;
  const auto reads = layer_reads(group.target->weights());
  const CacheState cache = cache_state(*group.target);
  const LoadMeter meter;
  record.generation = arm.strategy->generate(request);
  record.load = meter.read();
  note_cache(*group.target, cache, record);
  note_disk(*group.target, reads, record);
  record.key = item.key(arm);
  record.category = item.prompt->category;
  record.prompt_tokens = static_cast<int64_t>(item.tokens.size());
  record.question_id = item.prompt->id;
  record.turn = static_cast<int64_t>(item.turn);
  record.bytes_per_step = bytes_per_step(group, item, record.generation);
  record.copied_share = copied_share(item.tokens, record.generation.tokens);
  if (const auto tokens =
          request.tokenizer != nullptr ? thinking_tokens(*request.tokenizer) : std::nullopt) {
    record.thinking = thinking_span(item.tokens, record.generation.tokens, *tokens);
  }
  record.text = decode_text(request.tokenizer, record.generation.tokens);
  if (request.tokenizer != nullptr) {
    record.text_tokens = static_cast<int64_t>(request.tokenizer->encode(record.text).size());
  }
  record.compile_seconds = grammar(group, item).compile_seconds;
  score_answer(group.config->quality, item, record);
  validity_.check(*item.prompt, request.tokenizer, record);
  CounterRandomness other_random = loss_randomness();
  measure_loss(group, arm, make_request(group, arm, item, other_random), record);
  return record;
}

/// Traces the drafter of every strategy that has one along the first strategy's text.
void ExperimentRun::trace_item(const Group& group, const Item& item) {
  const auto& config = *group.config;
  const auto& text = folder_.record(item.key(group.arms.front())).generation.tokens;
  for (const Arm& arm : group.arms) {
    const auto key = item.key(arm);
    if (folder_.holds_trace(key)) {
      continue;
    }
    CounterRandomness random(config.seed);  // a trace draws nothing
    const Request request = make_request(group, arm, item, random);
    try {
      if (auto trace = arm.strategy->trace(request, text, *config.trace)) {
        folder_.append({.key = key,
                        .category = item.prompt->category,
                        .verifier = arm.config->verifier,
                        .prompt_tokens = static_cast<int64_t>(item.tokens.size()),
                        .trace = std::move(*trace)});
      }
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("trace of {}: {}", arm.config->name, error.what()));
    }
  }
}

Request ExperimentRun::make_request(const Group& group, const Arm& arm, const Item& item,
                                    Randomness& random) {
  const auto& config = *group.config;
  Constraint constraint = arm.config->constraint;
  constraint.grammar = grammar(group, item).grammar;
  return {.prompt = item.tokens,
          .sampling = config.sampling,
          .stop = config.stop,
          .random = random,
          .tokenizer = tokenizer(config),
          .on_tokens = [](TokenSpan) { InterruptGuard::check(); },
          .log_overlaps = config.log_overlaps,
          .constraint = constraint,
          .library_products = config.model.library_products};
}

PromptGrammars::Entry ExperimentRun::grammar(const Group& group, const Item& item) {
  const auto& config = *group.config;
  return config.grammar
             ? grammars_.get(*config.grammar, *item.prompt, *tokenizer(config), config.stop.end_ids)
             : PromptGrammars::Entry();
}

/// What the first strategy answered.
std::string ExperimentRun::reply(const Group& group, const Item& item) const {
  return reply_text(folder_.record(item.key(group.arms.front())).generation,
                    tokenizer(*group.config));
}

Report ExperimentRun::make_report() {
  auto report = describe_plan(plan_);
  report.command = options_.command;
  report.environment = folder_.recorded_environment().value_or(setup_.environment());
  if (folder_.was_resumed()) {
    report.notes.emplace_back(
        "The run was interrupted and resumed: its times come from several runs of the program.");
  }
  if (const auto changes = folder_.environment_changes(); !changes.empty()) {
    report.notes.push_back(fmt::format(
        "It was resumed in a changed environment ({}), so its times are a mixture of both: repeat "
        "the run in a new folder before relying on them.",
        fmt::join(changes, "; ")));
  }
  for (const auto& more : {prefix_notes(groups_), left_out_notes(left_out_, groups_.size())}) {
    report.notes.insert(report.notes.end(), more.begin(), more.end());
  }
  const auto records = in_plan_order(plan_, folder_.records());
  report.summary = summarize_run(plan_, records);
  report.details = run_details(plan_, folder_.path(), folder_.records());
  write_report_files(folder_, report, records);
  return report;
}

}  // namespace

Report run_experiment(const ExperimentPlan& plan, const RunOptions& options, std::ostream& log) {
  if (auto finished = finished_report(plan, options, log)) {
    return *std::move(finished);
  }
  return ExperimentRun(plan, options, log).run();
}

}  // namespace specdec
