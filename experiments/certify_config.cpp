#include "experiments/certify_config.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/arms.h"
#include "experiments/interrupt.h"
#include "experiments/progress.h"

namespace specdec {
namespace {

/// More tokens than are compared, so that drafts are as long as in a run.
constexpr int64_t kDraftRoom = 5;
constexpr double kFewestExpected = 5.0;

struct EncodedPrompt {
  std::string id;
  uint32_t number = 0;
  std::vector<Token> tokens;
};

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
    encode_prompts();
  }

  int64_t work() const {
    const auto arms = static_cast<int64_t>(group_.arms.size());
    return arms * static_cast<int64_t>(prompts_.size()) * (greedy() ? 1 : options_.samples);
  }

  void run(std::vector<ConfigTest>& tests, Progress& progress) {
    for (const Arm& arm : group_.arms) {
      if (arm.config->promise == Promise::kSearch) {
        continue;
      }
      if (greedy()) {
        tests.push_back(test_greedy(arm, progress));
        continue;
      }
      for (const auto& prompt : prompts_) {
        tests.push_back(test_sampled(arm, prompt, progress));
      }
    }
  }

 private:
  bool greedy() const { return config_.sampling.greedy(); }

  void encode_prompts() {
    for (const auto& prompt : config_.prompts.prompts) {
      auto tokens = prompt.turns.empty()
                        ? prompt.tokens
                        : encode_prompt(*tokenizer_, {{"user", prompt.turns.front()}},
                                        config_.prompts.chat, reference_->weights().config.bos_id);
      const auto size = static_cast<int64_t>(tokens.size());
      const int64_t most = config_.prompts.max_prompt_tokens;
      const bool fits = size + options_.tokens + kDraftRoom <= target_->max_length() &&
                        (most == 0 || size <= most);
      const bool wanted = greedy() || static_cast<int64_t>(prompts_.size()) < options_.prompts;
      if (fits && wanted) {
        prompts_.push_back({prompt.id, prompt.number, std::move(tokens)});
      }
    }
    if (prompts_.empty()) {
      throw Error(fmt::format("no prompt of {} fits the model", config_.prompts.file.string()));
    }
  }

  std::unique_ptr<DecodingStrategy> build(const Arm& arm, LanguageModel& target) {
    BuildContext context{target, loader_, [](const std::string&, LanguageModel& model) {
                           return measure_cost_curve(model, {});
                         }};
    return arm.config->make(context);
  }

  Task task(const EncodedPrompt& prompt) const {
    return {prompt.tokens, config_.sampling, config_.stop, tokenizer_};
  }

  ConfigTest new_test(const Arm& arm) const {
    return {.strategy = arm.config->name,
            .group = group_.name,
            .promise = arm.config->promise,
            .greedy = greedy()};
  }

  Generation generate(DecodingStrategy& strategy, const Task& task, const EncodedPrompt& prompt,
                      int64_t sample) const {
    InterruptGuard::check();
    CounterRandomness random(config_.seed, prompt.number, static_cast<uint32_t>(sample));
    return strategy.generate(task.request(random));
  }

  ConfigTest test_sampled(const Arm& arm, const EncodedPrompt& prompt, Progress& progress) {
    const auto strategy = build(arm, *target_);
    Task compared = task(prompt);
    compared.stop.max_new_tokens = options_.tokens;
    Task drawn = compared;
    drawn.stop.max_new_tokens += kDraftRoom;
    OutputCounts counts;
    for (int64_t sample = 0; sample < options_.samples; ++sample) {
      auto tokens = generate(*strategy, drawn, prompt, sample).tokens;
      tokens.resize(std::min(tokens.size(), static_cast<size_t>(options_.tokens)));
      ++counts[std::move(tokens)];
      progress.advance(arm.config->name + " on " + prompt.id);
    }
    const SequenceLaw law = likely_prefixes(
        plain_.function(), compared, kFewestExpected / static_cast<double>(options_.samples));
    auto test = new_test(arm);
    test.prompt = prompt.id;
    test.chi_square = chi_square(count_by_prefix(counts, law), law);
    return test;
  }

  ConfigTest test_greedy(const Arm& arm, Progress& progress) {
    const auto strategy = build(arm, *target_);
    auto test = new_test(arm);
    for (const auto& prompt : prompts_) {
      const Task asked = task(prompt);
      const auto law = reference_law(plain_.function(), fitting(asked));
      const auto& plain = law.begin()->first;
      const auto tokens = generate(*strategy, asked, prompt, 0).tokens;
      ++test.prompts;
      test.tokens += static_cast<int64_t>(plain.size());
      if (const auto position = first_difference(plain, tokens)) {
        test.differences.push_back("prompt " + prompt.id + ", " +
                                   explain_difference(arm, prompt, plain, tokens, *position));
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

  std::string explain_difference(const Arm& arm, const EncodedPrompt& prompt,
                                 const std::vector<Token>& plain, const std::vector<Token>& other,
                                 int64_t position) {
    std::vector<Token> history = prompt.tokens;
    history.insert(history.end(), plain.begin(), plain.begin() + position);
    WatchedModel watched(*target_, history);
    (void)generate(*build(arm, watched), task(prompt), prompt, 0);
    return explain(describe_divergence(plain, other, position, plain_.row(history), watched.sight(),
                                       task(prompt)));
  }

  const Group& group_;
  const ExperimentConfig& config_;
  const ConfigCertifyOptions& options_;
  const Tokenizer* tokenizer_;
  ModelLoader loader_;
  std::unique_ptr<GemmaModel> target_;
  std::unique_ptr<GemmaModel> reference_;
  PlainLogits plain_;
  std::vector<EncodedPrompt> prompts_;
};

/// Judges all sampled tests of lossless strategies together.
void judge(ConfigCertificate& certificate) {
  std::vector<ConfigTest*> judged;
  std::vector<double> p_values;
  for (auto& test : certificate.tests) {
    if (test.promise != Promise::kLossless) {
      continue;
    }
    if (test.greedy) {
      ++certificate.judged;
    } else if (test.chi_square.degrees > 0) {
      judged.push_back(&test);
      p_values.push_back(test.chi_square.p_value);
    }
  }
  const auto adjusted = holm_adjusted(p_values);
  for (size_t i = 0; i < judged.size(); ++i) {
    judged[i]->adjusted_p = adjusted[i];
    judged[i]->failed = adjusted[i] < kFalseAlarm;
  }
  certificate.judged += static_cast<int64_t>(judged.size());
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

bool ConfigCertificate::passed() const {
  return judged > 0 && std::none_of(tests.begin(), tests.end(),
                                    [](const ConfigTest& test) { return test.failed; });
}

ConfigCertificate certify_config(const ExperimentPlan& plan, const ConfigCertifyOptions& options,
                                 std::ostream& log) {
  const c10::InferenceMode guard;
  const auto groups = group_arms(plan);
  if (groups.front().config->threads > 0) {
    at::set_num_threads(static_cast<int>(groups.front().config->threads));
  }
  ConfigCertificate certificate{.options = options};
  for (const auto& group : groups) {
    GroupCertifier certifier(group, plan, options);
    Progress progress(log, Progress::choose_style(options.quiet), certifier.work());
    certifier.run(certificate.tests, progress);
  }
  judge(certificate);
  return certificate;
}

}  // namespace specdec
