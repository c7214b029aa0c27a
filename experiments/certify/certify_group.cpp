#include "experiments/certify/certify_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"
#include "decoders/analysis/test_power.h"
#include "experiments/certify/certify_models.h"
#include "experiments/certify/certify_state.h"
#include "experiments/certify/given_first.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

/// More tokens than are compared, so that drafts are as long as in a run.
constexpr int64_t kDraftRoom = 5;
/// Outputs less likely than this share a cell.
constexpr double kMinCell = 0.02;
constexpr double kMinInCell = 5.0;
/// A test whose tokens would show no wrong verifier draws others, at most so many times as many.
constexpr int64_t kMaxTimes = 10;
/// Places with a draft that say how many tokens it takes.
constexpr int64_t kMinPlaces = 20;

void refuse_corrections(const Group& group) {
  for (const Arm& arm : group.arms) {
    if (arm.config->correction != Correction::kNone) {
      throw ConfigError(fmt::format(
          "strategy {} corrects the distribution of masked decoding, which a test on samples of "
          "plain decoding cannot decide; `specdec certify` without a config proves corrections",
          arm.config->name));
    }
  }
}

bool searches(const Arm& arm) { return arm.config->notes.promise == Promise::kSearch; }

/// Runs a test; a check of specdec's own that fails on the way is the strategy's failure.
template <class Run>
void fill_test(ConfigTest& test, const Run& run) {
  try {
    run(test);
  } catch (const InternalError& error) {
    test.error = error.what();
    test.failed = test.promise == Promise::kLossless;
  }
}

}  // namespace

GroupCertifier::GroupCertifier(const Group& group, const ExperimentPlan& plan,
                               const GroupOptions& options)
    : group_(group),
      config_(*group.config),
      options_(options),
      files_(plan.models->read(config_.weights)),
      loader_(config_.model, plan.models.get()),
      target_(loader_.load(config_.weights, common_adapters(config_))),
      reference_(loader_.load(config_.weights, common_adapters(config_))),
      plain_(*reference_) {
  refuse_corrections(group);
  encode_prompts();
}

int64_t GroupCertifier::compared_prompts() const {
  return std::min(options_.config.prompts, static_cast<int64_t>(prompts_.size()));
}

int64_t GroupCertifier::tokens_to_draw() const {
  return samples_to_see(options_.config.detect, {1, draw_level()}, kPower);
}

int64_t GroupCertifier::planned_texts() const {
  return 1 + tokens_to_draw() / std::max<int64_t>(1, config_.stop.max_new_tokens);
}

/// Samples of one prompt's chi-square test, about.
int64_t GroupCertifier::planned_samples() const {
  return options_.config.samples > 0 ? options_.config.samples
                                     : samples_to_see(kCellsDetect, {10, options_.level}, kPower);
}

int64_t GroupCertifier::work() const {
  const auto arms = static_cast<int64_t>(group_.arms.size()) -
                    std::count_if(group_.arms.begin(), group_.arms.end(), searches);
  return arms * (greedy() ? static_cast<int64_t>(prompts_.size())
                          : planned_texts() + planned_samples() * compared_prompts());
}

template <class Run>
void GroupCertifier::append_test(std::vector<ConfigTest>& tests, const ConfigTest& wanted,
                                 int64_t work, Progress& progress, const Run& run) {
  CertifyState* state = options_.config.state;
  if (state == nullptr) {
    tests.push_back(run());
    return;
  }
  if (auto finished = state->find(wanted)) {
    tests.push_back(std::move(*finished));
    progress.expect(-work);
    return;
  }
  tests.push_back(run());
  state->add(tests.back());
}

void GroupCertifier::run(std::vector<ConfigTest>& tests, Progress& progress) {
  for (const Arm& arm : group_.arms) {
    ConfigTest wanted = new_test(arm);
    if (searches(arm)) {
      tests.push_back(wanted);
      continue;
    }
    if (greedy()) {
      append_test(tests, wanted, std::ssize(prompts_), progress,
                  [&] { return test_greedy(arm, progress); });
      continue;
    }
    append_test(tests, wanted, planned_texts(), progress,
                [&] { return test_positions_of(arm, progress); });
    for (int64_t i = 0; i < compared_prompts(); ++i) {
      EncodedPrompt& prompt = prompts_[static_cast<size_t>(i)];
      wanted.prompt = prompt.id;
      append_test(tests, wanted, planned_samples(), progress,
                  [&] { return test_cells(arm, prompt, progress); });
    }
  }
}

void GroupCertifier::encode_prompts() {
  const int64_t room = greedy() ? 1 : options_.config.tokens + 1 + kDraftRoom;
  for (const auto& prompt : config_.prompts.prompts) {
    Item item{&prompt};
    std::vector<ChatTurn> history;
    if (!encode_item(config_, files_, item, history) ||
        static_cast<int64_t>(item.tokens.size()) + room > target_->max_length()) {
      ++left_out_;
      continue;
    }
    prompts_.push_back({prompt.id, prompt.number, std::move(item.tokens), grammar(prompt)});
  }
  if (prompts_.empty()) {
    throw Error(
        fmt::format("no prompt of {} fits: each is longer than prompts.max_prompt_tokens, or than "
                    "the model's {} tokens less {} new ones",
                    config_.prompts.file.string(), target_->max_length(), room));
  }
}

std::shared_ptr<const CompiledGrammar> GroupCertifier::grammar(const Prompt& prompt) {
  return config_.grammar
             ? grammars_.get(*config_.grammar, prompt, *files_.tokenizer, config_.stop.end_ids)
                   .grammar
             : nullptr;
}

std::unique_ptr<DecodingStrategy> GroupCertifier::build(const Arm& arm, LanguageModel& target) {
  // Costs by which drafts pay, on any machine: else nothing would be tested.
  BuildContext context{target, loader_, [](const std::string& name, LanguageModel&) {
                         return made_up_cost_curve(name);
                       }};
  return arm.config->make(context);
}

Task GroupCertifier::task(const EncodedPrompt& prompt, const Arm& arm) const {
  Task asked{prompt.tokens, config_.sampling, config_.stop, files_.tokenizer.get(),
             arm.config->constraint};
  asked.constraint.grammar = prompt.grammar;
  return asked;
}

ConfigTest GroupCertifier::new_test(const Arm& arm) const {
  return {.strategy = arm.config->name,
          .point = arm.sweep_point,
          .promise = arm.config->notes.promise,
          .greedy = greedy()};
}

Generation GroupCertifier::generate(DecodingStrategy& strategy, const Task& task,
                                    const EncodedPrompt& prompt, int64_t sample) const {
  InterruptGuard::check();
  CounterRandomness source(config_.seed, prompt.number, static_cast<uint32_t>(sample));
  CheckedRandomness random(source);
  return strategy.generate(task.request(random));
}

// ---- The positions of ordinary texts ----

ConfigTest GroupCertifier::test_positions_of(const Arm& arm, Progress& progress) {
  auto test = new_test(arm);
  test.positions.emplace();
  fill_test(test, [&](ConfigTest& filled) {
    const auto texts = draw_texts(arm, tokens_to_draw(), 0, progress);
    filled.positions = test_positions(texts, *build(arm, *target_), *target_, draw_level());
    const int64_t wanted = tokens_to_draw_anew(*filled.positions);
    if (filled.promise == Promise::kLossless && wanted > 0) {
      const auto anew = draw_texts(arm, wanted, std::ssize(texts), progress);
      filled.positions = test_positions(anew, *build(arm, *target_), *target_, draw_level());
    }
  });
  return test;
}

int64_t GroupCertifier::tokens_to_draw_anew(const PositionTest& test) const {
  if (test.tells()) {
    return 0;
  }
  const int64_t most = kMaxTimes * tokens_to_draw();
  if (std::ssize(test.bias.places()) < kMinPlaces) {
    return most;  // too few to know how many it takes
  }
  const int64_t needed = test.tokens_needed(draw_level());
  return needed > most ? 0 : std::min(most, 2 * needed);
}

std::vector<DrawnText> GroupCertifier::draw_texts(const Arm& arm, int64_t wanted, int64_t first,
                                                  Progress& progress) {
  const auto strategy = build(arm, *target_);
  const auto count = static_cast<int64_t>(prompts_.size());
  const int64_t planned = first == 0 ? planned_texts() : 0;
  std::vector<DrawnText> texts;
  int64_t tokens = 0;
  for (int64_t i = first; tokens < wanted && i < first + wanted; ++i) {
    const auto& prompt = prompts_[static_cast<size_t>(i % count)];
    Task asked = task(prompt, arm);
    auto generation = generate(*strategy, asked, prompt, i / count);
    tokens += static_cast<int64_t>(generation.tokens.size()) - 1;
    texts.push_back({std::move(asked), std::move(generation.tokens), std::move(generation.steps)});
    progress.expect(i < planned ? 0 : 1);
    progress.advance(arm.config->name + " on " + prompt.id);
  }
  return texts;
}

// ---- The first tokens of many samples ----

ConfigTest GroupCertifier::test_cells(const Arm& arm, EncodedPrompt& prompt, Progress& progress) {
  auto test = new_test(arm);
  test.prompt = prompt.id;
  fill_test(test, [&](ConfigTest& filled) {
    if (!prompt.plain) {
      find_cells(prompt, task(prompt, arm));
    }
    if (!prompt.first) {
      return;
    }
    filled.samples = samples_of(prompt);
    const OutputCounts counts =
        count_by_prefix(draw_beginnings(arm, prompt, filled.samples, progress), *prompt.plain);
    filled.chi_square = chi_square(counts, *prompt.plain);
    filled.worst = worst_cell(counts, *prompt.plain);
    if (filled.chi_square.degrees > 0) {
      filled.visible = visible_total_variation(static_cast<double>(filled.samples),
                                               {filled.chi_square.degrees, options_.level}, kPower);
    }
  });
  return test;
}

void GroupCertifier::find_cells(EncodedPrompt& prompt, const Task& asked) {
  const auto logits = plain_.function();
  prompt.first = likely_first(logits, asked);
  if (!prompt.first) {
    prompt.plain.emplace();
    return;
  }
  Task compared = asked;
  compared.stop.max_new_tokens = options_.config.tokens + 1;
  const int64_t samples = options_.config.samples;
  const double least = samples == 0 ? 0.0 : kMinInCell / static_cast<double>(samples);
  prompt.plain = likely_prefixes(given_first(logits, prompt.tokens.size(), *prompt.first), compared,
                                 std::max(kMinCell, least));
}

int64_t GroupCertifier::samples_of(const EncodedPrompt& prompt) const {
  if (options_.config.samples > 0) {
    return options_.config.samples;
  }
  const auto degrees = std::max<int64_t>(1, std::ssize(*prompt.plain) - 1);
  return std::max(samples_to_see(kCellsDetect, {degrees, options_.level}, kPower),
                  static_cast<int64_t>(kMinInCell / kMinCell));
}

OutputCounts GroupCertifier::draw_beginnings(const Arm& arm, const EncodedPrompt& prompt,
                                             int64_t samples, Progress& progress) {
  const auto strategy = build(arm, *target_);
  const auto compared = static_cast<size_t>(options_.config.tokens + 1);
  Task asked = task(prompt, arm);
  asked.stop.max_new_tokens = static_cast<int64_t>(compared) + kDraftRoom;
  OutputCounts outputs;
  for (int64_t sample = 0; sample < samples; ++sample) {
    InterruptGuard::check();
    CounterRandomness source(config_.seed, prompt.number, static_cast<uint32_t>(sample));
    CheckedRandomness checked(source);
    FirstTokenGiven random(checked, static_cast<int64_t>(prompt.tokens.size()), *prompt.first);
    auto tokens = strategy->generate(asked.request(random)).tokens;
    tokens.resize(std::min(tokens.size(), compared));
    if (!tokens.empty() && tokens.front() == *prompt.first) {
      ++outputs[std::move(tokens)];
    }
    progress.advance(arm.config->name + " on " + prompt.id);
  }
  return outputs;
}

// ---- Greedy tokens ----

ConfigTest GroupCertifier::test_greedy(const Arm& arm, Progress& progress) {
  auto test = new_test(arm);
  fill_test(test, [&](ConfigTest& filled) {
    const auto strategy = build(arm, *target_);
    for (auto& prompt : prompts_) {
      const Task asked = task(prompt, arm);
      if (prompt.greedy.empty()) {
        prompt.greedy = reference_distribution(plain_.function(), fitting(asked)).begin()->first;
      }
      const Generation generation = generate(*strategy, asked, prompt, 0);
      const std::vector<Token>& tokens = generation.tokens;
      count_drafts(*arm.config, generation, filled);
      ++filled.prompts;
      filled.tokens += static_cast<int64_t>(prompt.greedy.size());
      if (const auto position = first_difference(prompt.greedy, tokens)) {
        filled.differences.push_back({prompt.id, find_cause(arm, prompt, tokens, *position)});
      }
      progress.advance(arm.config->name + " on " + prompt.id);
    }
    filled.failed = filled.promise == Promise::kLossless && !filled.differences.empty();
  });
  return test;
}

/// The task `asked`, ended where the context is full; the newest token needs no place in it.
Task GroupCertifier::fitting(Task asked) const {
  const int64_t room = target_->max_length() - static_cast<int64_t>(asked.prompt.size()) + 1;
  asked.stop.max_new_tokens = std::min(asked.stop.max_new_tokens, room);
  return asked;
}

/// Runs the prompt again, with an eye on the forward that decided.
TokenDivergence GroupCertifier::find_cause(const Arm& arm, const EncodedPrompt& prompt,
                                           const std::vector<Token>& other, int64_t position) {
  const auto& plain = prompt.greedy;
  const auto at = static_cast<size_t>(position);
  if (at == plain.size() || at == other.size()) {
    return describe_divergence(plain, other, position, {}, {}, task(prompt, arm));
  }
  std::vector<Token> history = prompt.tokens;
  history.insert(history.end(), plain.begin(), plain.begin() + position);
  WatchedModel watched(*target_, history);
  const auto again = generate(*build(arm, watched), task(prompt, arm), prompt, 0).tokens;
  auto divergence = describe_divergence(plain, other, position, plain_.row(history),
                                        watched.sight(), task(prompt, arm));
  divergence.repeated =
      again.size() > at && again[at] == other[at] && first_difference(plain, again) == position;
  return divergence;
}

}  // namespace specdec
