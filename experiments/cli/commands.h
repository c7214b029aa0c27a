#pragma once
#include <CLI/App.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "experiments/components/components.h"
#include "experiments/components/machine_profile.h"
#include "experiments/terminal/command_line.h"

namespace specdec {

/// What a command works with.
struct CommandContext : CommandLine {
  const Components& components;

  /// Device and dtype for a model that the command line names, and how many of its layers are
  /// active.
  ModelOptions model_options(const ActiveLayers& active = {}) const;
  /// The flags as overrides of a config, which name them.
  std::vector<std::string> overrides() const;
  void apply_threads() const;
  /// The defaults that a model's profile gives, unless --no-machine-profile says otherwise.
  ProfileDefaults machine_profile(const std::filesystem::path& model) const;
  /// Says on stderr what was taken from it.
  void note_profile(const ProfileDefaults& profile) const;
};

// To add a command: write its add_*_command and list it in cli.cpp.
void add_run_command(CLI::App& app, CommandContext& context);
void add_compare_command(CLI::App& app, CommandContext& context);
void add_check_command(CLI::App& app, CommandContext& context);
void add_list_command(CLI::App& app, CommandContext& context);
void add_certify_command(CLI::App& app, CommandContext& context);
void add_chat_command(CLI::App& app, CommandContext& context);
void add_convert_command(CLI::App& app, CommandContext& context);
void add_embed_command(CLI::App& app, CommandContext& context);
void add_generate_command(CLI::App& app, CommandContext& context);
void add_logits_command(CLI::App& app, CommandContext& context);
void add_inspect_command(CLI::App& app, CommandContext& context);
void add_profile_command(CLI::App& app, CommandContext& context);
void add_score_command(CLI::App& app, CommandContext& context);
void add_answers_command(CLI::App& app, CommandContext& context);
void add_train_command(CLI::App& app, CommandContext& context);
void add_tokenize_command(CLI::App& app, CommandContext& context);
void add_simulate_command(CLI::App& app, CommandContext& context);
void add_import_command(CLI::App& app, CommandContext& context);

/// A MODEL argument is looked up in the Hugging Face cache too.
inline constexpr const char* kModelHelp =
    "a checkpoint folder, a GGUF file, or org/name[@revision][/file.gguf] from the Hugging Face "
    "cache";

/// Adds --adapter, which may be repeated; the texts are for parse_adapter.
void add_adapter_option(CLI::App& command, std::vector<std::string>& adapters);
std::vector<AdapterChoice> parse_adapters(const std::vector<std::string>& texts);

/// The check of an option that refuses "": name `what`, or leave it out.
std::function<std::string(const std::string&)> not_empty(const std::string& what);

/// Adds --active-layers.
void add_active_layers_option(CLI::App& command, int64_t& layers);

/// Throws ConfigError, which says why, where a flag is given that changes how a model computes.
void refuse_model_flags(const GlobalFlags& flags, const std::string& why);

/// Ids written as "2,5,7". Throws ConfigError: not numbers, negative, none.
std::vector<Token> parse_token_list(const std::string& text);

}  // namespace specdec
