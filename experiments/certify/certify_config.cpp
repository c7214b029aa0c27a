#include "experiments/certify/certify_config.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/run/arms.h"
#include "experiments/run/prompt_grammars.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

/// More tokens than are compared, so that drafts are as long as in a run.
constexpr int64_t kDraftRoom = 5;
constexpr double kFewestExpected = 5.0;

struct EncodedPrompt {
  std::string id;
  uint32_t number = 0;
  std::vector<Token> tokens;
  std::shared_ptr<const CompiledGrammar> grammar = {};  ///< that its outputs obey, if any
  std::optional<SequenceDistribution> plain = {};  ///< what plain decoding gives, once it is known
};

void refuse_corrections(const Group& group) {
  for (const Arm& arm : group.arms) {
    if (arm.config->correction != Correction::kNone) {
      throw ConfigError(fmt::format(
          "strategy {} corrects the distribution of masked decoding, which a test on samples of "
          "plain "
          "decoding cannot decide; `specdec certify` without a config proves corrections",
          arm.config->name));
    }
  }
}

bool is_search(const StrategyConfig& strategy) { return strategy.promise == Promise::kSearch; }

/// Tests one group of a plan: strategies that share model, sampling and prompts.
class GroupCertifier {
 public:
  GroupCertifier(const Group& group, const ExperimentPlan& plan,
                 const ConfigCertifyOptions& options)
      : group_(group),
        config_(*group.config),
        options_(options),
        tokenizer_(plan.models->read(config_.weights).tokenizer.get()),
        loader_(config_.model),
        target_(loader_.load(config_.weights)),
        reference_(loader_.load(config_.weights)),
        plain_(*reference_) {
    refuse_corrections(group);
    encode_prompts();
  }

  int64_t left_out() const { return left_out_; }

  /// Generations to come.
  int64_t work() const {
    const auto arms = std::count_if(group_.arms.begin(), group_.arms.end(),
                                    [](const Arm& arm) { return !is_search(*arm.config); });
    return arms * static_cast<int64_t>(prompts_.size()) * (greedy() ? 1 : options_.samples);
  }

  void run(std::vector<ConfigTest>& tests, Progress& progress) {
    for (const Arm& arm : group_.arms) {
      if (is_search(*arm.config)) {
        tests.push_back(new_test(arm));
        continue;
      }
      if (greedy()) {
        tests.push_back(test_greedy(arm, progress));
        continue;
      }
      for (auto& prompt : prompts_) {
        tests.push_back(test_sampled(arm, prompt, progress));
      }
    }
  }

 private:
  bool greedy() const { return config_.sampling.greedy(); }

  void encode_prompts() {
    const int64_t room = greedy() ? 1 : options_.tokens + kDraftRoom;
    const int64_t limit = config_.prompts.max_prompt_tokens;
    for (const auto& prompt : config_.prompts.prompts) {
      if (!greedy() && static_cast<int64_t>(prompts_.size()) == options_.prompts) {
        break;
      }
      auto tokens = prompt.turns.empty()
                        ? prompt.tokens
                        : encode_prompt(*tokenizer_, {{"user", prompt.turns.front()}},
                                        config_.prompts.chat, reference_->weights().config.bos_id);
      const auto size = static_cast<int64_t>(tokens.size());
      if (size + room > target_->max_length() || (limit > 0 && size > limit)) {
        ++left_out_;
        continue;
      }
      prompts_.push_back({prompt.id, prompt.number, std::move(tokens), grammar(prompt)});
    }
    if (prompts_.empty()) {
      throw Error(fmt::format(
          "no prompt of {} fits: each is longer than prompts.max_prompt_tokens, or than "
          "the model's {} tokens less {} new ones",
          config_.prompts.file.string(), target_->max_length(), room));
    }
  }

  std::shared_ptr<const CompiledGrammar> grammar(const Prompt& prompt) {
    return config_.grammar
               ? grammars_.get(*config_.grammar, prompt, *tokenizer_, config_.stop.end_ids).grammar
               : nullptr;
  }

  std::unique_ptr<DecodingStrategy> build(const Arm& arm, LanguageModel& target) {
    BuildContext context{target, loader_, [](const std::string&, LanguageModel& model) {
                           return measure_cost_curve(model, {});
                         }};
    return arm.config->make(context);
  }

  /// What an arm is asked; it may use the prompt's grammar in its own way.
  Task task(const EncodedPrompt& prompt, const Arm& arm) const {
    Task asked{prompt.tokens, config_.sampling, config_.stop, tokenizer_, arm.config->constraint};
    asked.constraint.grammar = prompt.grammar;
    return asked;
  }

  ConfigTest new_test(const Arm& arm) const {
    return {.strategy = arm.config->name,
            .point = arm.sweep_point,
            .promise = arm.config->promise,
            .greedy = greedy()};
  }

  Generation generate(DecodingStrategy& strategy, const Task& task, const EncodedPrompt& prompt,
                      int64_t sample) const {
    InterruptGuard::check();
    CounterRandomness random(config_.seed, prompt.number, static_cast<uint32_t>(sample));
    return strategy.generate(task.request(random));
  }

  ConfigTest test_sampled(const Arm& arm, EncodedPrompt& prompt, Progress& progress) {
    const auto strategy = build(arm, *target_);
    Task compared = task(prompt, arm);
    compared.stop.max_new_tokens = options_.tokens;
    Task drawn = compared;
    drawn.stop.max_new_tokens += kDraftRoom;
    OutputCounts outputs;
    for (int64_t sample = 0; sample < options_.samples; ++sample) {
      auto tokens = generate(*strategy, drawn, prompt, sample).tokens;
      tokens.resize(std::min(tokens.size(), static_cast<size_t>(options_.tokens)));
      ++outputs[std::move(tokens)];
      progress.advance(arm.config->name + " on " + prompt.id);
    }
    if (!prompt.plain) {
      prompt.plain = likely_prefixes(plain_.function(), compared,
                                     kFewestExpected / static_cast<double>(options_.samples));
    }
    const OutputCounts counts = count_by_prefix(outputs, *prompt.plain);
    auto test = new_test(arm);
    test.prompt = prompt.id;
    test.chi_square = chi_square(counts, *prompt.plain);
    test.worst = worst_cell(counts, *prompt.plain);
    return test;
  }

  ConfigTest test_greedy(const Arm& arm, Progress& progress) {
    const auto strategy = build(arm, *target_);
    auto test = new_test(arm);
    for (auto& prompt : prompts_) {
      const Task asked = task(prompt, arm);
      if (!prompt.plain) {
        prompt.plain = reference_distribution(plain_.function(), fitting(asked));
      }
      const auto& plain = prompt.plain->begin()->first;
      const auto tokens = generate(*strategy, asked, prompt, 0).tokens;
      ++test.prompts;
      test.tokens += static_cast<int64_t>(plain.size());
      if (const auto position = first_difference(plain, tokens)) {
        test.differences.push_back({prompt.id, find_cause(arm, prompt, plain, tokens, *position)});
      }
      progress.advance(arm.config->name + " on " + prompt.id);
    }
    test.failed = test.promise == Promise::kLossless && !test.differences.empty();
    return test;
  }

  /// The same task, ended where the context is full; the newest token needs no place in it.
  Task fitting(Task asked) const {
    const int64_t room = target_->max_length() - static_cast<int64_t>(asked.prompt.size()) + 1;
    asked.stop.max_new_tokens = std::min(asked.stop.max_new_tokens, room);
    return asked;
  }

  /// Runs the prompt again, with an eye on the forward that decided.
  TokenDivergence find_cause(const Arm& arm, const EncodedPrompt& prompt,
                             const std::vector<Token>& plain, const std::vector<Token>& other,
                             int64_t position) {
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

  const Group& group_;
  const ExperimentConfig& config_;
  const ConfigCertifyOptions& options_;
  const Tokenizer* tokenizer_;
  ModelLoader loader_;
  std::unique_ptr<TransformerModel> target_;
  std::unique_ptr<TransformerModel> reference_;
  PlainLogits plain_;
  PromptGrammars grammars_;
  std::vector<EncodedPrompt> prompts_;
  int64_t left_out_ = 0;
};

/// Decides all sampled tests of lossless strategies together.
void decide(std::vector<ConfigTest>& tests) {
  std::vector<ConfigTest*> checked;
  std::vector<double> p_values;
  for (auto& test : tests) {
    if (test.promise == Promise::kLossless && !test.greedy && test.tells()) {
      checked.push_back(&test);
      p_values.push_back(test.chi_square.p_value);
    }
  }
  const auto adjusted = holm_adjusted(p_values);
  for (size_t i = 0; i < checked.size(); ++i) {
    checked[i]->adjusted_p = adjusted[i];
    checked[i]->failed = adjusted[i] < kFalseAlarm;
  }
}

void refuse_searches_only(const std::vector<Group>& groups) {
  for (const auto& group : groups) {
    for (const auto& arm : group.arms) {
      if (!is_search(*arm.config)) {
        return;
      }
    }
  }
  throw ConfigError(
      "there is nothing to certify: all strategies of the config are searches, which promise other "
      "outputs than the target's; 'specdec certify beam_search' compares them with what they "
      "equal");
}

}  // namespace

std::vector<double> holm_adjusted(const std::vector<double>& p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0.0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const auto left = static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, left * p_values[order[rank]]));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

std::optional<WorstCell> worst_cell(const OutputCounts& counts,
                                    const SequenceDistribution& distribution) {
  double samples = 0.0;
  for (const auto& [output, count] : counts) {
    samples += static_cast<double>(count);
  }
  std::optional<WorstCell> worst;
  double most = -1.0;
  for (const auto& [beginning, mass] : distribution) {
    const double expected = mass * samples;
    const auto found = counts.find(beginning);
    const int64_t count = found == counts.end() ? 0 : found->second;
    const double difference = static_cast<double>(count) - expected;
    if (expected >= kFewestExpected && difference * difference / expected > most) {
      most = difference * difference / expected;
      worst = {beginning, expected, count};
    }
  }
  return worst;
}

bool ConfigCertificate::passed() const {
  std::map<std::pair<std::string, std::string>, bool> tested;
  for (const auto& test : tests) {
    if (test.failed) {
      return false;
    }
    if (test.promise == Promise::kLossless) {
      tested[{test.strategy, test.point}] |= test.tells();
    }
  }
  return std::all_of(tested.begin(), tested.end(), [](const auto& entry) { return entry.second; });
}

ConfigCertificate certify_config(const ExperimentPlan& plan, const ConfigCertifyOptions& options,
                                 std::ostream& log) {
  const c10::InferenceMode guard;
  const auto groups = group_arms(plan);
  refuse_searches_only(groups);
  if (groups.front().config->threads > 0) {
    at::set_num_threads(static_cast<int>(groups.front().config->threads));
  }
  ConfigCertificate certificate{.options = options};
  for (const auto& group : groups) {
    GroupCertifier certifier(group, plan, options);
    Progress progress(log, Progress::choose_style(options.quiet), certifier.work());
    certifier.run(certificate.tests, progress);
    certificate.left_out += certifier.left_out();
  }
  decide(certificate.tests);
  return certificate;
}

}  // namespace specdec
