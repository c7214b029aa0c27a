#include "experiments/run/experiment_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/config/config_file.h"
#include "experiments/config/yaml_writer.h"
#include "experiments/run/prompt_grammars.h"
#include "experiments/run/sampling_config.h"
#include "experiments/run/sweep.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

StopRule read_stop(const ConfigNode& root, const ModelFiles* target) {
  const auto node = root.child("stop", false);
  StopRule stop;
  stop.max_new_tokens = root.get<int64_t>("max_new_tokens", 128, {1, kMaxTokens});
  const bool ignore_eos = node.get<bool>("ignore_eos", false);
  const int64_t last = target == nullptr ? kMaxTokens : target->config.vocab_size - 1;
  for (const int64_t id : node.get_list<int64_t>("ids", {}, {0, last})) {
    stop.stop_ids.push_back(static_cast<Token>(id));
  }
  stop.stop_strings = node.get_list<std::string>("strings", {});
  if (std::count(stop.stop_strings.begin(), stop.stop_strings.end(), "") > 0) {
    node.fail("strings", "an empty text would stop every generation at once");
  }
  if (target != nullptr && !stop.stop_strings.empty() && target->tokenizer == nullptr) {
    node.fail("strings", target->no_text(fmt::format(
                             "{} has no tokenizer, so text cannot stop it; use stop.ids",
                             target->folder.string())));
  }
  if (target != nullptr && !ignore_eos) {
    stop.end_ids = target->config.end_ids;
  }
  return stop;
}

/// What prompts lack is one mistake, however many they are.
void check_prompt_schemas(const ConfigNode& node, const GrammarConfig& grammar,
                          const PromptsConfig& prompts) {
  int64_t without = 0;
  std::string first;
  for (const Prompt& prompt : prompts.prompts) {
    if (prompt.schema.empty()) {
      first = without == 0 ? prompt.id : first;
      ++without;
    } else {
      note_error(node, "per_prompt", [&] { check_grammar(grammar_of(grammar, prompt)); });
    }
  }
  if (without > 0) {
    const std::string more = without == 1 ? " has" : fmt::format(" and {} more have", without - 1);
    node.fail("per_prompt", fmt::format("{}: prompt '{}'{} no 'schema'; add one to each line",
                                        prompts.file.string(), first, more));
  }
}

/// Whether the target has the tokens that a grammar names, and nothing follows those that end
/// texts.
void check_tokens(const ConfigNode& node, const GrammarConfig& grammar, const ModelFiles& target,
                  const StopRule& stop) {
  if (grammar.token_names.empty() || target.tokenizer == nullptr) {
    return;
  }
  GrammarSource source = grammar.source;
  source.cuts = Cuts::kAny;
  try {
    (void)compile_grammar(make_grammar_vocabulary(*target.tokenizer, stop.end_ids, {},
                                                  {.folder = default_cache_folder()}),
                          source);
  } catch (const GrammarError& error) {
    node.fail(error.what());
  }
}

/// The grammar that all outputs obey; noted mistakes include those of the prompts' own schemas.
std::optional<GrammarConfig> read_constraint(const ConfigNode& root, const PromptsConfig& prompts,
                                             const ModelFiles* target, const StopRule& stop) {
  root.ignore("grammar");  // known, also when it is not given
  if (!root.has("grammar")) {
    return std::nullopt;
  }
  const auto node = root.child("grammar");
  GrammarConfig grammar = read_grammar(node);
  if (target != nullptr && target->tokenizer == nullptr) {
    node.fail(target->no_text(
        fmt::format("{} has no tokenizer, and a grammar speaks of text", target->folder.string())));
  }
  if (target != nullptr) {
    check_tokens(node, grammar, *target, stop);
  }
  if (grammar.per_prompt) {
    check_prompt_schemas(node, grammar, prompts);
  }
  return grammar;
}

constexpr NamedValue<Correction> kCorrections[] = {{"none", Correction::kNone},
                                                   {"rejection", Correction::kRejection},
                                                   {"importance", Correction::kImportance},
                                                   {"asap", Correction::kAsap}};

/// `grammar: {mask_drafts, forced, correction, samples}` of a strategy. Importance and asap only
/// tend to the distribution that they aim at.
CorrectionOptions read_grammar_use(const ConfigNode& strategy, const RunPlan& plan,
                                   StrategyConfig& config) {
  if (!plan.grammar) {
    if (strategy.has("grammar")) {
      strategy.ignore("grammar");
      strategy.fail("grammar", "says how a grammar is used, and this run has none");
    }
    return {};
  }
  const auto node = strategy.child("grammar", false);
  config.constraint.mask_drafts = node.get<bool>("mask_drafts", true);
  config.constraint.forced = node.get<bool>("forced", true);
  CorrectionOptions options{.correction =
                                node.choose("correction", kCorrections, Correction::kNone)};
  config.correction = options.correction;
  if (options.correction == Correction::kNone) {
    return options;
  }
  options.samples = node.get<int64_t>("samples", options.samples, {1, 1 << 20});
  note_error(node, "correction", [&] { CorrectedDecoding::check(plan.sampling); });
  if (options.correction != Correction::kRejection) {
    note_promise(plan, Promise::kLossy);
  }
  return options;
}

std::optional<TraceOptions> read_trace(const ConfigNode& root) {
  root.ignore("trace");  // known, also when it is not given
  if (!root.has("trace")) {
    return std::nullopt;
  }
  const auto node = root.child("trace");
  return TraceOptions{.depth = node.get<int64_t>("depth", 8, {1, kMaxDraftLength}),
                      .width = node.get<int64_t>("width", 1, {1, 64})};
}

/// A trace goes along the first strategy's text, which must be the target's own.
void check_trace(const ExperimentConfig& config, const ConfigNode& root) {
  if (config.trace && !config.strategies.empty() &&
      config.strategies.front().notes.promise == Promise::kLossy) {
    root.fail("trace", fmt::format("drafters are traced along the text of the first strategy, and "
                                   "{} is lossy: put a lossless one first, such as "
                                   "{{type: autoregressive}}",
                                   config.strategies.front().name));
  }
}

/// Whether figures are of the text before it begins to repeat itself.
constexpr NamedValue<bool> kCutsLoops[] = {{"keep", false}, {"cut", true}};

/// The experiment's name is that of its folder below runs/.
std::string read_name(const ConfigNode& root, const std::filesystem::path& file) {
  const auto name = root.get<std::string>("name", file.stem().string());
  const bool is_plain =
      !name.empty() && name != "." && name != ".." &&
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == '/'; });
  if (!is_plain) {
    root.fail("name", fmt::format("'{}' cannot be the name of a folder in runs/: give one without "
                                  "slashes, such as 'my_experiment'; --out names any folder",
                                  one_line(name, 60)));
  }
  return name;
}

/// What happens to the hidden states of prompts, for drafters on them: they are kept, or such
/// prompts are read whole.
constexpr NamedValue<StatesPolicy> kStatesPolicies[] = {{"keep", StatesPolicy::kKeep},
                                                        {"recompute", StatesPolicy::kRecompute}};

PrefixCacheConfig read_prefix_cache(const ConfigNode& root, const ModelOptions& model) {
  root.ignore("prefix_cache");  // known, also where it is not given
  if (!root.has("prefix_cache")) {
    return {};
  }
  if (model.library_products) {
    root.fail("prefix_cache",
              "reads prompts from where they are new, and model.prefill_products: library from the "
              "beginning: leave one of them out");
  }
  const ConfigNode node = root.child("prefix_cache");
  return {.megabytes = node.get<int64_t>("megabytes", 256, {1, kMaxTokens}),
          .shared = node.get<bool>("shared", false),
          .states = node.choose("states", kStatesPolicies, StatesPolicy::kKeep)};
}

ExperimentConfig read_experiment(const ConfigNode& root, ModelCatalog& catalog,
                                 const Components& components) {
  ExperimentConfig config;
  config.seed = root.get<uint64_t>("seed", 0);
  config.threads = root.get<int64_t>("threads", 0, {0, 1024});
  const ModelFiles* target = nullptr;
  config.model.threads = config.threads;
  ProfileDefaults profile;
  config.weights =
      read_model(root.child("model"), components, catalog, config.model, target, profile);
  if (target != nullptr && target->config.bidirectional) {
    root.child("model").fail("weights",
                             "is an encoder (bidirectional attention), which cannot decode; "
                             "'specdec embed' gives its embeddings");
  }
  config.sampling = read_sampling(root.child("sampling", false), target);
  config.stop = read_stop(root, target);
  config.prompts = read_prompts_config(root.child("prompts"), target, config.model.adapters);
  config.grammar = read_constraint(root, config.prompts, target, config.stop);
  config.repeats = root.get<int64_t>("repeats", 1, {1, 100000});
  config.warm_up = root.get<int64_t>("warm_up", 1, {0, 1000});
  config.log_overlaps = root.child("log", false).get<bool>("overlap", false);
  config.trace = read_trace(root);
  config.quality = read_quality(root, config.prompts.prompts);
  config.cut_loops = root.choose("loops", kCutsLoops, false);
  config.prefix_cache = read_prefix_cache(root, config.model);
  config.workload = write_yaml(*root.resolved());

  const RunPlan plan{.components = components,
                     .target = target,
                     .models = catalog,
                     .sampling = config.sampling,
                     .max_new_tokens = config.stop.max_new_tokens,
                     .include_mtp = config.model.include_mtp,
                     .grammar = config.grammar.has_value(),
                     .profile = &profile,
                     .target_options = &config.model};
  std::set<std::string> names;
  const auto nodes = root.components("strategies");
  if (nodes.empty() && root.is_list("strategies")) {
    root.fail("strategies",
              "no strategy to run; give at least one, such as "
              "{type: autoregressive}");
  }
  for (const auto& node : nodes) {
    config.strategies.push_back(read_strategy(node, plan, components));
    const auto& name = config.strategies.back().name;
    if (!names.insert(name).second) {
      node.fail_at("name", fmt::format("two strategies are called '{}'; give them names", name));
    }
  }
  check_trace(config, root);
  config.machine_profile = profile.text();
  return config;
}

}  // namespace

StrategyConfig read_strategy(const ConfigNode& node, const RunPlan& plan,
                             const Components& components) {
  StrategyConfig strategy;
  strategy.type = node.get<std::string>("type", "");
  strategy.name = node.get<std::string>("name", strategy.type);
  if (strategy.name.empty() && node.has("name")) {
    node.fail("name", "the name is empty");
  }
  RunPlan own = plan;
  own.strategy = std::make_shared<StrategyNotes>();
  own.draft = std::make_shared<DraftNotes>();
  const CorrectionOptions correction = read_grammar_use(node, own, strategy);
  strategy.make = components.strategies.prepare(node, own);
  strategy.notes = *own.strategy;
  if (strategy.make && correction.correction != Correction::kNone) {
    strategy.make = [make = std::move(strategy.make), correction](BuildContext& context) {
      return std::make_unique<CorrectedDecoding>(make(context), correction);
    };
  }
  const auto resolved = node.resolved();
  strategy.yaml = write_yaml(*resolved);
  if (const auto* verifier = resolved->find("verifier")) {
    const auto* type = verifier->value->find("type");
    strategy.verifier = type == nullptr ? "" : type->value->text;
  }
  return strategy;
}

ExperimentPlan load_experiment(const std::filesystem::path& file,
                               const std::vector<std::string>& overrides,
                               const Components& components) {
  const auto errors = std::make_shared<ConfigErrors>();
  const auto tree = load_config(file, overrides, *errors);
  ExperimentPlan plan;
  plan.models = std::make_shared<ModelCatalog>();

  const ConfigNode root(tree, errors, file.parent_path());
  plan.name = read_name(root, file);
  plan.description = root.get<std::string>("description", "");
  auto base = read_experiment(root, *plan.models, components);
  const auto sweep = read_sweep(root);
  root.refuse_unknown_keys();
  plan.yaml = write_yaml(*root.resolved());
  plan.root = root;
  plan.sweep_keys = sweep.keys;
  if (sweep.keys.empty()) {
    plan.points.push_back({"", {}, std::move(base)});
  }
  for (const auto& combination : sweep.combinations) {
    const auto changed = tree->clone();
    apply_combination(*changed, sweep, combination, *errors);
    const ConfigNode point(changed, errors, file.parent_path());
    point.ignore("name");
    point.ignore("description");
    auto config = read_experiment(point, *plan.models, components);
    point.ignore("sweep");
    point.refuse_unknown_keys();
    plan.points.push_back({combination.label, combination.values, std::move(config),
                           combination.condition, combination.choice});
  }
  errors->throw_if_any();
  return plan;
}

}  // namespace specdec
