#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "decoders/shapes/cost_aware.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/shapes/optimal_trees.h"
#include "decoders/shapes/static_tree.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"
#include "experiments/config/yaml_scalar.h"

namespace specdec {
namespace {

// Dynamic programming grows with the square of the nodes.
constexpr int64_t kMaxPlannedNodes = 256;
constexpr int64_t kMaxBranches = 64;

/// A path that is longer than the window would hide its own beginning from its end.
void check_depth(const ConfigNode& node, const RunPlan& plan, int64_t depth) {
  const int64_t window = plan.target == nullptr ? 0 : plan.target->config.sliding_window;
  if (window > 0 && depth >= window) {
    node.fail(
        fmt::format("a tree {} levels deep does not fit the target's sliding window of {} "
                    "tokens; make it shallower",
                    depth, window));
  }
}

/// What a tree of so many levels notes of its branches.
void check_branches(const ConfigNode& node, const RunPlan& plan, int64_t depth, int64_t branches) {
  note_branches(plan, branches, depth);
  if (branches > 1) {
    check_branch_levels(node, plan, depth);
  }
}

/// The list of lists under `key`; none, which has been noted, when it is another thing.
std::optional<std::vector<std::vector<int64_t>>> read_paths(const ConfigNode& node,
                                                            const std::string& key) {
  std::vector<std::vector<int64_t>> paths;
  const auto tree = node.raw(key);
  if (tree->kind != YamlTree::Kind::kList) {
    node.fail(key, "should be a list of paths, as [[0], [1], [0, 0]]; is " + describe(*tree));
    return std::nullopt;
  }
  for (const auto& item : tree->items) {
    std::vector<int64_t> path;
    bool valid = item->kind == YamlTree::Kind::kList;
    for (const auto& rank : item->items) {
      valid =
          valid && read_scalar<int64_t>(*rank, {0, kMaxBranches - 1}, path.emplace_back()).empty();
    }
    if (!valid) {
      node.fail(key, fmt::format("a path is a list of ranks from 0 to {}, as [0, 2, 1]",
                                 kMaxBranches - 1));
      return std::nullopt;
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

/// The static tree of a config; none when neither is given, or what is given is no list, which has
/// been noted.
std::optional<RankTree> read_static_tree(const ConfigNode& node) {
  node.ignore("widths");  // known, whichever is given
  node.ignore("paths");
  if (node.has("paths") == node.has("widths")) {
    node.fail(
        "a static tree is given by 'paths' (lists of ranks, as [[0], [1], [0, 0]]) or by "
        "'widths' (children of the nodes of each level, as [4, 2, 1])");
    return std::nullopt;
  }
  if (node.has("paths")) {
    const auto paths = read_paths(node, "paths");
    return paths ? std::optional(tree_of_paths(*paths)) : std::nullopt;
  }
  const auto written = node.raw("widths");
  const auto widths = node.get_list<int64_t>("widths", {}, {1, kMaxBranches});
  const bool is_whole = node.is_list("widths") && widths.size() == written->items.size();
  return is_whole ? std::optional(tree_of_widths(widths, kMaxDraftLength)) : std::nullopt;
}

ShapeRegistry::Make prepare_static(const ConfigNode& node, const RunPlan& plan) {
  RankTree tree;
  try {
    const auto given = read_static_tree(node);
    if (!given) {
      return {};
    }
    tree = *given;
    if (tree.nodes() > kMaxDraftLength) {
      node.fail(fmt::format("{} nodes are more than {}", tree.nodes(), kMaxDraftLength));
    }
    check_depth(node, plan, tree.depth());
    (void)StaticTreeShape(tree);
    check_branches(node, plan, tree.depth(), tree.branches());
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
  return [tree](BuildContext&) { return std::make_unique<StaticTreeShape>(tree); };
}

struct OptimalTreeOptions {
  int64_t nodes = 16;
  int64_t depth = 8;
};

OptionTable<OptimalTreeOptions> optimal_options() {
  using Options = OptimalTreeOptions;
  return OptionTable<Options>()
      .add("nodes", &Options::nodes, "drafted tokens, at most", {1, kMaxPlannedNodes})
      .add("depth", &Options::depth, "levels, at most", {1, kMaxPlannedNodes})
      .describe({{"acceptance", "", "list of 0 to 1",
                  "probability that the best, second best, ... token is accepted"}});
}

ShapeRegistry::Make prepare_optimal(const ConfigNode& node, const RunPlan& plan) {
  const auto [nodes, depth] = optimal_options().read(node);
  node.ignore("acceptance");
  check_depth(node, plan, depth);
  if (!node.has("acceptance")) {
    node.fail(
        "the key 'acceptance' is missing; give the probabilities that the drafter's best, second "
        "best, ... token is accepted, such as [0.6, 0.2, 0.05]: the report of a run with "
        "another tree shows them");
    return {};
  }
  const auto acceptance = node.get_list<double>("acceptance", {}, {0.0, 1.0});
  RankTree tree;
  try {
    tree = OptimalTrees(acceptance, nodes, depth).tree(nodes, depth);
    (void)StaticTreeShape(tree);
    check_branches(node, plan, tree.depth(), tree.branches());
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
  return [tree](BuildContext&) { return std::make_unique<StaticTreeShape>(tree); };
}

OptionTable<DynamicTreeOptions> dynamic_options() {
  using Options = DynamicTreeOptions;
  return OptionTable<Options>()
      .add("nodes", &Options::nodes, "drafted tokens that are verified (EAGLE-2: 59)",
           {1, kMaxDraftLength})
      .add("depth", &Options::depth, "levels, at most (EAGLE-2: 8)", {1, kMaxDraftLength})
      .add("top_k", &Options::top_k,
           "nodes of a level that are expanded, and children of each (EAGLE-2: 10)",
           {1, kMaxBranches});
}

ShapeRegistry::Make prepare_dynamic(const ConfigNode& node, const RunPlan& plan) {
  const DynamicTreeOptions options = dynamic_options().read(node);
  check_depth(node, plan, options.depth);
  check_branches(node, plan, options.depth, options.top_k);
  note_best_only(plan);
  return [options](BuildContext&) { return std::make_unique<DynamicTreeShape>(options); };
}

OptionTable<CostAwareOptions> cost_aware_options() {
  using Options = CostAwareOptions;
  return OptionTable<Options>()
      .add("max_nodes", &Options::max_nodes, "drafted tokens, at most", {1, kMaxPlannedNodes})
      .add("max_depth", &Options::max_depth, "levels, at most", {1, kMaxPlannedNodes})
      .add("branches", &Options::branches, "children of a node, at most; 1: chains",
           {1, kMaxBranches})
      .add("acceptance", &Options::acceptance,
           "first guess of the probability that the best, second best, ... token is accepted",
           {0.0, 1.0})
      .add("memory", &Options::memory, "weight of the past in the running estimates", {0.5, 1.0})
      .add("margin", &Options::margin,
           "share of more tokens per second than plain decoding that a draft must promise",
           {0.0, 10.0})
      .add("explore", &Options::explore,
           "share of the time that may be lost by trying what does not seem to pay", {0.0, 1.0})
      .renamed("keep", "persist")
      .add("persist", &Options::persist,
           "estimates outlive a request; false: each request starts from the first guess");
}

ShapeRegistry::Make prepare_cost_aware(const ConfigNode& node, const RunPlan& plan) {
  const CostAwareOptions options = cost_aware_options().read(node);
  check_depth(node, plan, options.max_depth);
  check_branches(node, plan, options.max_depth, options.branches);
  auto checked = options;
  checked.target_cost.points = {{.new_tokens = 1, .context = 1, .seconds = 1.0}};
  try {
    (void)CostAwareShape(checked);
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
  return [options](BuildContext& context) {
    auto measured = options;
    measured.target_cost = context.cost_curve("target", context.target);
    if (context.draft_model != nullptr) {
      measured.drafter_cost = context.cost_curve(context.draft_model_name, *context.draft_model);
    }
    return std::make_unique<CostAwareShape>(std::move(measured));
  };
}

}  // namespace

void add_trees(ShapeRegistry& trees) {
  const std::string page = "docs/trees.md";
  trees.add("static", {.help = "the same tree at every step; give widths or paths",
                       .source = "Medusa: Cai et al., 2024, arXiv:2401.10774",
                       .page = page,
                       .options = {{"widths", "none", "list of 1 to 64",
                                    "children of each node, level by level: [4, 2, 1]"},
                                   {"paths", "none", "list of lists of 0 to 63",
                                    "ranks from the root to each node: [[0], [1], [0, 0]]"}},
                       .promise = Promise::kLossless,
                       .prepare = prepare_static,
                       .examples = {{"{type: static, paths: [[0], [1], [0, 0]]}"}}});
  trees.add("optimal",
            {.help = "the static tree that is expected to accept the most tokens",
             .source = "Sequoia: Chen et al., 2024, arXiv:2402.12374",
             .page = page,
             .options = optimal_options().help(),
             .promise = Promise::kLossless,
             .prepare = prepare_optimal,
             .examples = {{"{type: optimal, acceptance: [0.5, 0.3], nodes: 3, depth: 2}"}}});
  trees.add("dynamic",
            {.help = "expands confident nodes, verifies the most likely ones; siblings are never "
                     "drawn",
             .source = "EAGLE-2: Li et al., 2024, arXiv:2406.16858",
             .page = page,
             .options = dynamic_options().help(),
             .promise = Promise::kLossless,
             .prepare = prepare_dynamic,
             .examples = {{"{type: dynamic, nodes: 3, depth: 2, top_k: 2}"}}});
  trees.add("cost_aware",
            {.help = "the draft with the most expected tokens per second at every step, from "
                     "measured costs and running acceptance; a plain step when none pays",
             .page = page,
             .options = cost_aware_options().help(),
             .promise = Promise::kLossless,
             .prepare = prepare_cost_aware,
             // What is kept makes one output depend on those before it, which cannot be enumerated.
             .examples = {{"{type: cost_aware, max_nodes: 3, max_depth: 2, branches: 2, "
                           "acceptance: [0.6, 0.3], persist: false}"}}});
}

}  // namespace specdec
