#pragma once
#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/cli/commands.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

/// Options of the commands that generate text: generate and chat.
struct GenerationArguments {
  std::string model;
  std::vector<std::string> adapters;
  int64_t max_new_tokens = 128;
  uint64_t seed = 0;
  SamplingParams sampling;  ///< but for the bias
  std::vector<std::string> logit_bias;
  int64_t active_layers = 0;
  std::vector<std::string> stops;
  std::string strategy = "{type: autoregressive}";
  std::optional<std::string> grammar;
};

/// Adds MODEL and the options; `max_new_tokens` is taken as its default.
void add_generation_options(CLI::App& command, GenerationArguments& arguments);

/// What the sampling options say, the bias included, of which the model's files know the tokens.
/// Throws ConfigError for values out of range and tokens that are none.
SamplingParams make_sampling(const GenerationArguments& arguments, const ModelFiles& files);

/// Where a generation ends. Throws ConfigError for stop strings that cannot be used.
StopRule make_stop(const GenerationArguments& arguments, const ModelFiles& files, bool ignore_eos);

/// A line on standard error for options that were given and change nothing at temperature 0; none
/// with --quiet.
void warn_of_sampling(const CommandContext& context, const GenerationArguments& arguments,
                      const StrategyConfig& strategy, bool has_grammar, int64_t samples);

/// Says that turns are not written by a template of the checkpoint's own, where it has none.
void note_chat_format(const CommandContext& context, const ModelFiles& files);

/// What --grammar says: a file, or inline YAML as under `grammar:` of a config.
std::optional<GrammarConfig> read_grammar_text(const GenerationArguments& arguments,
                                               const ModelFiles& files);

/// A line on standard error for each thing that a user should know of what was loaded: heads of the
/// base under an adapted target. None with --quiet.
void print_warnings(const CommandContext& context, const ModelLoader& loader);

}  // namespace specdec
