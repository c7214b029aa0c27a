#include "experiments/run/run_setup.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "experiments/components/device_choice.h"
#include "experiments/components/expert_measurement.h"
#include "experiments/run/text_measures.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

/// Seconds to measure a cost curve for: enough that a moment's noise does not stay in all
/// predictions.
constexpr double kCurveSeconds = 2.0;
/// Repeats of each kind of forward that tells what experts cost.
constexpr int64_t kExpertRepeats = 8;

}  // namespace

void RunSetup::load() {
  choose_threads();
  log_profiles();
  for (auto& group : groups_) {
    load_group(group);
    build(group);
    if (group.config->trace) {
      (void)cost_curve(group, "target", *group.target);
    }
    InterruptGuard::check();
  }
  note_weights();
  describe_environment();
}

void RunSetup::choose_threads() {
  const ExperimentConfig& config = *groups_.front().config;
  int64_t threads = config.model.threads;
  prefill_threads_ = config.model.prefill_threads;
  std::string reason;
  const auto recorded = folder_.recorded_environment();
  if (config.threads == 0 && recorded) {
    threads = recorded->threads;
    prefill_threads_ = recorded->prefill_threads;
    reason = recorded->thread_reason;
  }
  if (threads > 0) {
    at::set_num_threads(static_cast<int>(threads));
  }
  environment_ = read_environment();
  environment_.thread_reason = reason;
  environment_.prefill_threads = prefill_threads_;
  environment_.machine_profile = config.machine_profile;
}

void RunSetup::log_profiles() const {
  std::set<std::string> said;
  for (const Group& group : groups_) {
    const std::string& profile = group.config->machine_profile;
    if (log_ != nullptr && !profile.empty() && said.insert(profile).second) {
      *log_ << profile << "\n";
    }
  }
}

void RunSetup::load_group(Group& group) {
  ModelOptions model = group.config->model;
  // What was chosen with the first model, or by the run that is resumed, holds for all.
  if (!loaders_.empty() || !environment_.thread_reason.empty()) {
    model.threads = at::get_num_threads();
    model.prefill_threads = prefill_threads_;
  }
  auto& loader = loaders_[loading_key(model)];
  if (loader == nullptr) {
    loader = std::make_unique<ModelLoader>(model, &catalog_);
  }
  group.loader = loader.get();
  auto& target = targets_[model_key(*group.config)];
  if (target != nullptr) {
    group.target = target;
    return;
  }
  if (log_ != nullptr) {
    *log_ << "loading " << group.config->weights.string() << "\n";
  }
  const auto& adapters = group.config->model.adapters;
  target =
      loader->load(group.config->weights, adapters);  // those of prompts too, which are checked
  loader->set_adapters(*target, group.config->weights, adapters_for(adapters, {}));
  group.target = target;
}

void RunSetup::build(Group& group) {
  for (auto& arm : group.arms) {
    BuildContext context{*group.target, *group.loader,
                         [this, &group](const std::string& name, LanguageModel& model) {
                           return cost_curve(group, name, model);
                         }};
    arm.strategy = arm.config->make(context);
    arm.prefixes = prefixes(*group.config);
    if (traces_loss(group, arm)) {
      arm.tracer = arm.config->make(context);
    }
  }
}

/// The store of a new arm: its own, unless all of the model share one.
std::shared_ptr<PrefixStore> RunSetup::prefixes(const ExperimentConfig& config) {
  const auto [megabytes, is_shared, states] = config.prefix_cache;
  if (megabytes == 0) {
    return nullptr;
  }
  const auto make = [bytes = megabytes << 20U, states = states] {
    return std::make_shared<PrefixStore>(bytes, states);
  };
  if (!is_shared) {
    return make();
  }
  auto& shared = shared_prefixes_[fmt::format("{}|{}|{}", model_key(config), megabytes,
                                              states == StatesPolicy::kKeep)];
  if (shared == nullptr) {
    shared = make();
  }
  return shared;
}

CostCurve RunSetup::cost_curve(const Group& group, const std::string& of, LanguageModel& model) {
  const std::string name = group.name.empty() ? of : of + " at " + group.name;
  if (auto frozen = folder_.read_cost_curve(name)) {
    return *std::move(frozen);
  }
  if (log_ != nullptr) {
    *log_ << "measuring the cost curve of " << name << "\n";
  }
  const c10::InferenceMode guard;
  CostCurveOptions options;
  options.seconds = kCurveSeconds;
  options.between = InterruptGuard::check;
  for (const Group& traced : groups_) {
    if (traced.config->trace) {  // simulate scales the curve by these
      options.new_tokens.push_back(traced.config->trace->depth + 1);
    }
  }
  auto curve = measure_cost_curve(model, options);
  if (&model == group.target.get()) {  // what a text's tokens wake of its experts
    curve = curve_of_text(
        curve,
        measure_experts(group.loader->weights(group.config->weights), group.loader->kv_store(),
                        {.repeats = kExpertRepeats, .between = InterruptGuard::check}));
  }
  folder_.write_cost_curve(name, curve);
  return curve;
}

void RunSetup::note_weights() {
  for (const auto& [key, loader] : loaders_) {
    for (const auto& [weights, fingerprint] : loader->fingerprints()) {
      environment_.weights[weights] = fingerprint;
    }
    for (const std::string& warning : loader->warnings()) {
      environment_.warnings.push_back(warning);
      if (log_ != nullptr) {
        *log_ << "warning: " << warning << "\n";
      }
    }
  }
  if (folder_.resumed()) {
    folder_.check_weights(environment_.weights);
  }
}

void RunSetup::describe_environment() {
  const auto& config = *groups_.front().config;
  environment_.threads = at::get_num_threads();  // loading may have chosen it
  if (environment_.thread_reason.empty()) {
    environment_.thread_reason = groups_.front().loader->thread_reason();
  }
  environment_.device = config.model.device;
  environment_.gpu = gpu_name(parse_device(config.model.device));
  environment_.model = config.weights.string();
  environment_.dtype = format_text(groups_.front().target->weights());
}

}  // namespace specdec
