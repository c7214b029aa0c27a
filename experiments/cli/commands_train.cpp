#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "core/error.h"
#include "experiments/cli/commands.h"
#include "experiments/components/device_choice.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/train/answer_plan.h"
#include "experiments/train/head_trainer.h"
#include "experiments/train/train_config.h"
#include "experiments/train/trainer.h"

namespace specdec {

void add_train_command(CLI::App& app, CommandContext& context) {
  struct Arguments {
    std::string file;
    std::vector<std::string> sets;
  };
  auto* command = app.add_subcommand("train", "train a small Gemma, or a head that drafts for one");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("FILE", arguments->file, "training config (YAML)")->required();
  command->add_option("--set", arguments->sets, "override a key: --set steps=200. May be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->footer(
      "Writes a checkpoint folder: tokenizer, config.json, bfloat16 weights, training.jsonl (loss\n"
      "curve) and training.json (held-out losses). A config with 'head: {type: medusa | eagle |\n"
      "eagle3 | mtp | gemma4_assistant | self}' and 'target: {weights: FOLDER}' trains a head on "
      "a\n"
      "frozen target; of type self a LoRA of its first layers, for the drafter self. An\n"
      "interrupted training resumes with the same command from its last checkpoint.\n\n"
      "Example: specdec train configs/train/draft.yaml --set out=my_draft --set steps=500");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      if (describes_answers(arguments->file, arguments->sets)) {
        throw ConfigError(
            fmt::format("{0}: describes answers to train on, not a training; make them "
                        "with: specdec answers {0}",
                        arguments->file));
      }
      if (!describes_training(arguments->file, arguments->sets)) {
        throw ConfigError(arguments->file +
                          ": describes no training: it has neither 'data' nor "
                          "'head'; an experiment is started with: specdec run " +
                          arguments->file);
      }
      refuse_model_flags(
          context.flags,
          "a training computes in float32 and keeps no cache: leave it out. The config's "
          "bfloat16_products multiplies matrices in bfloat16, and head.stored says how a head is "
          "written");
      const InterruptGuard interrupts;
      TrainOptions options;
      options.device = parse_device(context.model_options().device);
      if (!context.flags.quiet) {
        options.log = [&context](const std::string& line) { context.err << line << std::endl; };
      }
      std::filesystem::path out;
      if (describes_head(arguments->file, arguments->sets)) {
        const HeadTrainConfig config = load_head_train_config(arguments->file, arguments->sets);
        train_head(config, options);
        out = config.out;
      } else {
        const TrainConfig config = load_train_config(arguments->file, arguments->sets);
        train_model(config, options);
        out = config.out;
      }
      context.out << out.string() << "\n";
      return 0;
    };
  });
}

}  // namespace specdec
