#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "experiments/certify/certify_report.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/component_list.h"
#include "experiments/config/config_file.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

struct ListArguments {
  std::string name;
  bool matrix = false;
  std::vector<std::string> pages;
  JsonOption json;
};

/// Builds and runs each combination (with NAME, those that it is in) once; certify enumerates them.
int list_matrix(const CommandContext& context, const ListArguments& arguments) {
  JsonOutput json(arguments.json, context.out);
  const InterruptGuard guard;
  const auto result =
      certify(context.components,
              {.names = arguments.name.empty() ? std::vector<std::string>()
                                               : std::vector<std::string>{arguments.name},
               .seeds = 1,
               .enumerate = false,
               .quiet = context.flags.quiet,
               .isolate = true},
              context.err);
  json.write_result([&](std::ostream& out) { write_matrix(out, result); },
                    [&](std::ostream& out) { write_matrix_json(out, result); });
  return result.passed() ? 0 : 1;
}

/// Writes the lists in the pages anew and names those that changed.
int write_pages(const CommandContext& context, const std::vector<std::string>& pages) {
  const auto components = describe_components(context.components);
  for (const std::string& page : pages) {
    const std::filesystem::path file = page;
    const auto before = read_text_file(file);
    std::string after;
    try {
      after = with_component_lists(before, components, file.parent_path().filename() == "docs");
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}", page, error.what()));
    }
    if (after != before) {
      write_file(file, after);
      context.out << fmt::format("{}: written anew\n", page);
    }
  }
  return 0;
}

void print_all(std::ostream& out, const std::vector<ComponentHelp>& components) {
  out << "Names that a config can use as 'type', with their options and defaults;\n"
         "'specdec list NAME' explains the options of one, or of all of a kind.\n\n";
  print_components(out, components);
  out << "lossless: greedy output equals the target's, sampled output follows the target's "
         "distribution.\n"
         "lossy: the output is not the target's; a strategy with a lossy verifier is lossy.\n"
         "unverified: unknown; 'specdec certify' measures it.\n"
         "search: beam search; hypotheses and scores equal those of plain beam search.\n"
         "prompts: one line per prompt, {\"turns\": [...]}, {\"prompt\": \"...\"} or {\"tokens\": "
         "[...]}.\n  Every strategy continues the first strategy's replies (multi_turn: false: "
         "first\n"
         "  turns only); with prompts.chat, in the model's chat format.\n";
}

/// Throws ConfigError where the word after --json is the name of a component, or of a kind: it
/// would be a file's.
void refuse_component_as_file(const std::string& file, const std::vector<ComponentHelp>& all) {
  const bool is_name = std::any_of(all.begin(), all.end(), [&](const ComponentHelp& component) {
    return component.type == file || is_kind(component, file);
  });
  if (is_name) {
    throw ConfigError(
        fmt::format("--json {0}: the word after --json names a file, and {0} is a name of the "
                    "list: give 'specdec list {0} --json', or ./{0} for such a file",
                    file));
  }
}

int list(const CommandContext& context, const ListArguments& arguments) {
  refuse_model_flags(context.flags, "list makes no model; leave it out");
  refuse_component_as_file(arguments.json.file, describe_components(context.components));
  if (arguments.matrix) {
    return list_matrix(context, arguments);
  }
  if (!arguments.pages.empty()) {
    return write_pages(context, arguments.pages);
  }
  auto components = describe_components(context.components);
  if (const auto& explained = context.components.caches.explained();
      explained.count(arguments.name) > 0) {
    throw ConfigError(explained.at(arguments.name) + ". See 'specdec list cache'.");
  }
  if (!arguments.name.empty()) {
    components = components_named(components, arguments.name);
  }
  auto* const print = arguments.name.empty() ? print_all : print_details;
  JsonOutput json(arguments.json, context.out);
  json.write_result([&](std::ostream& out) { print(out, components); },
                    [&](std::ostream& out) { out << components_json(components).dump(1) << "\n"; });
  return 0;
}

}  // namespace

void add_list_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("list", "list strategies, drafters, verifiers and options");
  const auto arguments = std::make_shared<ListArguments>();
  command->add_option("NAME", arguments->name,
                      "a type, or a kind: strategy, drafter, verifier, draft_length, tree, cache");
  auto* matrix =
      command->add_flag("--matrix", arguments->matrix,
                        "every drafter x shape x verifier x {greedy, sampled}: "
                        "lossless, lossy, or refused with its reason; with NAME (a type), those "
                        "with it");
  command
      ->add_option("--markdown", arguments->pages,
                   "write the lists in these pages anew, each between <!-- specdec list NAME --> "
                   "and <!-- end of list -->")
      ->type_name("FILE ...")
      ->excludes(matrix);
  add_json_option(*command, arguments->json, "one JSON object");
  command->footer(
      "Examples:\n"
      "  specdec list\n"
      "  specdec list suffix\n"
      "  specdec list --matrix\n"
      "  specdec list --matrix suffix\n"
      "  specdec list --markdown README.md docs/*.md");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return list(context, *arguments); };
  });
}

}  // namespace specdec
