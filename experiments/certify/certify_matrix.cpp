#include "experiments/certify/certify_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "core/error.h"
#include "experiments/config/names.h"
#include "experiments/config/yaml_tree.h"
#include "experiments/config/yaml_writer.h"
#include "grammar/grammar_source.h"

namespace specdec {
namespace {

/// "{type: fixed, length: 2}" -> "fixed(length: 2)"
std::string label_of(const std::string& yaml) {
  std::shared_ptr<const YamlTree> tree;
  try {
    tree = parse_yaml(replace_all(yaml, "<folder>/", ""), "example", false);
    require_config(tree->kind == YamlTree::Kind::kMap, "it has no keys; write {type: NAME}");
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format(
        "the registry's example {} is no YAML map ({}). '<drafter>' and '<verifier>' stand for "
        "values (drafter: <drafter>), '<shape>' for a key with its value, '<folder>' for a folder",
        yaml, error.what()));
  }
  auto options = YamlTree::map("");
  std::string type;
  for (const auto& entry : tree->entries) {
    if (entry.key == "type") {
      type = entry.value->text;
    } else {
      options->set(entry.key, "", entry.value);
    }
  }
  if (options->entries.empty()) {
    return type;
  }
  const auto flow = write_yaml_flow(*options);
  return fmt::format("{}({})", type, flow.substr(1, flow.size() - 2));
}

template <class Entry>
std::vector<Example> examples_of(const std::string& name, const Entry& entry) {
  return entry.examples.empty() ? std::vector<Example>{{.yaml = "{type: " + name + "}"}}
                                : entry.examples;
}

/// Every example of a registry; `key` is put before each: "tree: ".
template <class Entries>
std::vector<CertifyPart> parts_of(const Entries& entries, const std::string& key = "") {
  std::vector<CertifyPart> parts;
  for (const auto& [name, entry] : entries) {
    for (const auto& example : examples_of(name, entry)) {
      parts.push_back({name, label_of(example.yaml), key + example.yaml, entry.promise});
    }
  }
  return parts;
}

std::vector<CertifyPart> shapes_of(const Components& all) {
  auto shapes = parts_of(all.draft_lengths.entries(), "draft_length: ");
  for (auto& shape : shapes) {
    shape.label = "chain " + shape.label;
  }
  for (auto& tree : parts_of(all.trees.entries(), "tree: ")) {
    tree.label = "tree " + tree.label;
    shapes.push_back(std::move(tree));
  }
  return shapes;
}

/// The parts that a placeholder stands for; one empty part when the strategy does not have it.
std::vector<CertifyPart> parts_for(const std::string& yaml, const std::string& placeholder,
                                   std::vector<CertifyPart> parts) {
  return yaml.find(placeholder) == std::string::npos ? std::vector<CertifyPart>(1)
                                                     : std::move(parts);
}

class CellList {
 public:
  explicit CellList(const Components& components) : all_(components) {}

  void add(const std::string& name, const StrategyRegistry::Entry& entry, const Example& example) {
    const auto both = example.yaml + example.equals;
    const auto shapes = parts_for(both, "<shape>", shapes_of(all_));
    const auto verifiers = parts_for(both, "<verifier>", parts_of(all_.verifiers.entries()));
    for (const auto& drafter : parts_for(both, "<drafter>", parts_of(all_.drafters.entries()))) {
      for (const auto& shape : shapes) {
        for (const auto& verifier : verifiers) {
          cells_.push_back({.strategy = {name, name, "", entry.promise},
                            .drafter = drafter,
                            .shape = shape,
                            .verifier = verifier});
          fill(cells_.back(), entry, example);
        }
      }
    }
  }
  std::vector<CertifyCell> finish() && { return std::move(cells_); }

 private:
  void fill(CertifyCell& cell, const StrategyRegistry::Entry& entry, const Example& example) const {
    const auto fill_in = [&](std::string text) {
      text = replace_all(std::move(text), "<drafter>", cell.drafter.yaml);
      text = replace_all(std::move(text), "<shape>", cell.shape.yaml);
      return replace_all(std::move(text), "<verifier>", cell.verifier.yaml);
    };
    cell.yaml = fill_in(example.yaml);
    cell.equals = fill_in(example.equals);
    const auto drafter = all_.drafters.entries().find(cell.drafter.type);
    if (drafter != all_.drafters.entries().end() && drafter->second.write_example_files) {
      cell.write_files = drafter->second.write_example_files;
      cell.files_of = cell.drafter.type;
    } else if (entry.write_example_files) {
      cell.write_files = entry.write_example_files;
      cell.files_of = cell.strategy.type;
    }
    const std::string label = label_of(cell.yaml);
    if (cell.drafter.type.empty()) {
      cell.strategy.label = label;
    }
  }

  const Components& all_;
  std::vector<CertifyCell> cells_;
};

}  // namespace

Promise CertifyCell::promise() const {
  return weaker(weaker(strategy.promise, drafter.promise), weaker(shape.promise, verifier.promise));
}

std::vector<std::string> CertifyCell::types() const {
  std::vector<std::string> found;
  for (const auto* part : {&strategy, &drafter, &shape, &verifier}) {
    if (!part->type.empty()) {
      found.push_back(part->type);
    }
  }
  return found;
}

bool CertifyCell::names(const std::string& type) const {
  const auto mine = types();
  return std::find(mine.begin(), mine.end(), type) != mine.end();
}

std::vector<CertifyCell> certify_cells(const Components& components) {
  CellList list(components);
  for (const auto& [name, entry] : components.strategies.entries()) {
    for (const auto& example : examples_of(name, entry)) {
      list.add(name, entry, example);
    }
  }
  return std::move(list).finish();
}

std::vector<std::string> component_names(const Components& components) {
  std::set<std::string> names;
  const auto add = [&](const auto& registry) {
    for (const auto& name : registry.names()) {
      names.insert(name);
    }
  };
  add(components.strategies);
  add(components.drafters);
  add(components.draft_lengths);
  add(components.trees);
  add(components.verifiers);
  return {names.begin(), names.end()};
}

/// What names that no combination has are refused with.
static std::string unknown_component(const Components& components, const std::string& name,
                                     const std::vector<std::string>& known) {
  const auto cache = components.caches.entries().find(name);
  if (cache == components.caches.entries().end()) {
    return fmt::format("nothing is registered as '{}'{}", name, known_names_text(name, known));
  }
  return fmt::format(
      "'{0}' is a cache, and certify combines strategies, drafters, verifiers, draft lengths and "
      "trees. Test the strategies of a config over it: specdec certify --config CONFIG --cache "
      "'{1}'",
      name, examples_of(name, cache->second).front().yaml);
}

std::vector<CertifyCell> select_cells(const Components& components,
                                      const std::vector<std::string>& names) {
  const auto known = component_names(components);
  for (const auto& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw ConfigError(unknown_component(components, name, known));
    }
  }
  auto cells = certify_cells(components);
  std::erase_if(cells, [&](const CertifyCell& cell) {
    return !names.empty() && std::none_of(names.begin(), names.end(),
                                          [&](const auto& name) { return cell.names(name); });
  });
  return cells;
}

namespace {

/// Over the tokens "a", "b" and an end: free, forced and forbidden places, and ends on the way.
std::shared_ptr<const CompiledGrammar> certify_grammar() {
  const std::vector<std::string_view> pieces = {"a", "b", ""};
  GrammarSource source;
  source.kind = GrammarKind::kRegex;
  source.text = "(a|b)(a(a|b)|bba){0,6}b?";
  return compile_grammar(std::make_shared<GrammarVocabulary>(pieces, std::vector<Token>{2}),
                         source);
}

}  // namespace

std::vector<Task> certify_tasks(bool greedy) {
  static const auto grammar = certify_grammar();
  const std::vector<Token> prompt = {0, 1, 0, 0, 1, 0};
  const Constraint masked{grammar, true, true};
  const Constraint unmasked{grammar, false, false};
  if (greedy) {
    return {{prompt, {.temperature = 0.0}, {.max_new_tokens = 16}},
            {prompt,
             {.temperature = 0.0, .repetition_penalty = 1.4},
             {.max_new_tokens = 16, .end_ids = {2}}},
            {prompt, {.temperature = 0.0}, {.max_new_tokens = 16}, nullptr, masked}};
  }
  return {
      {prompt, {.temperature = 1.0}, {.max_new_tokens = 4}},
      {prompt,
       {.temperature = 0.8, .top_k = 2, .min_p = 0.02, .repetition_penalty = 1.3},
       {.max_new_tokens = 4, .end_ids = {2}}},
      {prompt, {.temperature = 1.4, .top_p = 0.8}, {.max_new_tokens = 4, .stop_ids = {0}}},
      // Long, for what learns from earlier steps; the distribution is narrow, or there were no end
      // of it.
      {prompt, {.temperature = 1.0, .top_p = 0.7}, {.max_new_tokens = 8}},
      // Under a grammar; the last of them corrected to the distribution given that the text is in
      // it.
      {prompt, {.temperature = 1.0}, {.max_new_tokens = 4, .end_ids = {2}}, nullptr, masked},
      {prompt, {.temperature = 1.0}, {.max_new_tokens = 3, .end_ids = {2}}, nullptr, unmasked},
      {prompt, {.temperature = 1.0}, {.max_new_tokens = 3, .end_ids = {2}}, nullptr, masked, true},
  };
}

}  // namespace specdec
