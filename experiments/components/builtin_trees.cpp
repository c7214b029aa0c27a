#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/error.h"
#include "decoders/shapes/cost_aware.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/shapes/optimal_trees.h"
#include "decoders/shapes/static_tree.h"
#include "experiments/components/builtin.h"
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

/// The list of lists under `key`.
std::vector<std::vector<int64_t>> read_paths(const ConfigNode& node, const std::string& key) {
  std::vector<std::vector<int64_t>> paths;
  const auto tree = node.raw(key);
  if (tree->kind != YamlTree::Kind::kList) {
    node.fail(key, "should be a list of paths, as [[0], [1], [0, 0]]; is " + describe(*tree));
    return paths;
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
      return {};
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

RankTree read_static_tree(const ConfigNode& node) {
  if (node.has("paths") == node.has("widths")) {
    node.fail(
        "a static tree is given by 'paths' (lists of ranks, as [[0], [1], [0, 0]]) or by "
        "'widths' (children of the nodes of each level, as [4, 2, 1])");
    return {};
  }
  if (node.has("paths")) {
    return tree_of_paths(read_paths(node, "paths"));
  }
  return tree_of_widths(node.get_list<int64_t>("widths", {}, {1, kMaxBranches}), kMaxDraftLength);
}

TreeRegistry::Make prepare_static(const ConfigNode& node, const RunPlan& plan) {
  RankTree tree;
  try {
    tree = read_static_tree(node);
    if (tree.nodes() > kMaxDraftLength) {
      node.fail(fmt::format("{} nodes are more than {}", tree.nodes(), kMaxDraftLength));
    }
    check_depth(node, plan, tree.depth());
    (void)StaticTreeShape(tree);
    note_branches(plan, tree.branches());
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
  return [tree](BuildContext&) { return std::make_unique<StaticTreeShape>(tree); };
}

TreeRegistry::Make prepare_optimal(const ConfigNode& node, const RunPlan& plan) {
  const auto nodes = node.get<int64_t>("nodes", 16, {1, kMaxPlannedNodes});
  const auto depth = node.get<int64_t>("depth", 8, {1, kMaxPlannedNodes});
  const auto acceptance = node.get_list<double>("acceptance", {}, {0.0, 1.0});
  check_depth(node, plan, depth);
  RankTree tree;
  try {
    tree = OptimalTrees(acceptance, nodes, depth).tree(nodes, depth);
    (void)StaticTreeShape(tree);
    note_branches(plan, tree.branches());
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
  return [tree](BuildContext&) { return std::make_unique<StaticTreeShape>(tree); };
}

TreeRegistry::Make prepare_dynamic(const ConfigNode& node, const RunPlan& plan) {
  DynamicTreeOptions options;
  options.nodes = node.get<int64_t>("nodes", options.nodes, {1, kMaxDraftLength});
  options.depth = node.get<int64_t>("depth", options.depth, {1, kMaxDraftLength});
  options.top_k = node.get<int64_t>("top_k", options.top_k, {1, kMaxBranches});
  check_depth(node, plan, options.depth);
  note_branches(plan, options.top_k);
  return [options](BuildContext&) { return std::make_unique<DynamicTreeShape>(options); };
}

TreeRegistry::Make prepare_cost_aware(const ConfigNode& node, const RunPlan& plan) {
  CostAwareOptions options;
  options.max_nodes = node.get<int64_t>("max_nodes", options.max_nodes, {1, kMaxPlannedNodes});
  options.max_depth = node.get<int64_t>("max_depth", options.max_depth, {1, kMaxPlannedNodes});
  options.branches = node.get<int64_t>("branches", options.branches, {1, kMaxBranches});
  options.acceptance = node.get_list<double>("acceptance", options.acceptance, {0.0, 1.0});
  options.memory = node.get<double>("memory", options.memory, {0.5, 1.0});
  options.margin = node.get<double>("margin", options.margin, {0.0, 10.0});
  options.explore = node.get<double>("explore", options.explore, {0.0, 1.0});
  node.refuse_old_name("keep", "persist");
  options.persist = node.get<bool>("persist", options.persist);
  check_depth(node, plan, options.max_depth);
  note_branches(plan, options.branches);
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

void add_trees(TreeRegistry& trees) {
  trees.add("static", {.help = "the same tree at every step (Medusa)\n"
                               "widths: [4, 2, 1], children of each node level by level; or\n"
                               "paths: [[0], [1], [0, 0]], lists of ranks from the root",
                       .promise = Promise::kLossless,
                       .prepare = prepare_static,
                       .examples = {{"{type: static, paths: [[0], [1], [0, 0]]}"}}});
  trees.add(
      "optimal",
      {.help = "the static tree that accepts the most tokens (Sequoia)\n"
               "acceptance: [0.6, 0.12, 0.05], probability of the best, second best, ... token\n"
               "nodes: 16, depth: 8",
       .promise = Promise::kLossless,
       .prepare = prepare_optimal,
       .examples = {{"{type: optimal, acceptance: [0.5, 0.3], nodes: 3, depth: 2}"}}});
  trees.add("dynamic",
            {.help = "expands confident nodes, verifies the most likely ones (EAGLE-2; its\n"
                     "published size: nodes 59, depth 8, top_k 10); siblings are never drawn\n"
                     "nodes: 24, depth: 6, top_k: 4",
             .promise = Promise::kLossless,
             .prepare = prepare_dynamic,
             .examples = {{"{type: dynamic, nodes: 3, depth: 2, top_k: 2}"}}});
  trees.add(
      "cost_aware",
      {.help = "the draft with the most expected tokens per second at every step, from\n"
               "measured costs and running acceptance; a plain step when none pays\n"
               "max_nodes: 16, max_depth: 8, branches: 3 (1: chains), acceptance: [0.6, 0.12,\n"
               "0.05] (first guess), memory: 0.97, margin: 0.03, explore: 0.01 (time that may be\n"
               "lost), persist: true (false: each request starts from the first guess)",
       .promise = Promise::kLossless,
       .prepare = prepare_cost_aware,
       // What is kept makes one output depend on those before it, which cannot be enumerated.
       .examples = {{"{type: cost_aware, max_nodes: 3, max_depth: 2, branches: 2, acceptance: "
                     "[0.6, 0.3], persist: false}"}}});
}

}  // namespace specdec
