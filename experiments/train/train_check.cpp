#include "experiments/train/train_check.h"

#include <fmt/format.h>

#include "core/error.h"
#include "experiments/train/answer_set.h"
#include "experiments/train/head_config.h"
#include "experiments/train/model_shape.h"
#include "experiments/train/text_data.h"
#include "experiments/train/training_folder.h"

namespace specdec {
namespace {

std::string plan_text(const TextPlan& text, const TrainSchedule& schedule) {
  size_t bytes = 0;
  for (const TextSource& source : text.sources) {
    bytes += split_text(source, text.held_out).train.size();
  }
  return fmt::format("{} steps of {} sequences of {} tokens, on {:.1f} MB of text in {} files",
                     schedule.steps, text.batch_size, text.sequence_length,
                     static_cast<double>(bytes) / 1e6, text.sources.size());
}

/// Throws ConfigError for a folder that train refuses.
void check_out(const std::filesystem::path& config, const std::filesystem::path& out) {
  if (const std::string why = refused_training_folder(out, FolderWork::kTraining); !why.empty()) {
    throw ConfigError(fmt::format("{}: out: {}", config.string(), why));
  }
}

void warn_of_schedule(const TrainSchedule& schedule, std::vector<std::string>& warnings) {
  if (std::string warning = endless_warm_up(schedule); !warning.empty()) {
    warnings.push_back(std::move(warning));
  }
}

void warn_of_answers(const HeadTrainConfig& config, std::vector<std::string>& warnings) {
  try {
    require_answers(config.answers, config.shape.layers);
  } catch (const Error& error) {
    warnings.push_back(fmt::format("answers: {}", error.what()));
  }
}

}  // namespace

TrainCheck check_training(const std::filesystem::path& file,
                          const std::vector<std::string>& overrides) {
  TrainCheck check;
  if (describes_head(file, overrides)) {
    const HeadTrainConfig config = load_head_train_config(file, overrides);
    const auto type = head_type_name(config.shape.type);
    const std::string plan =
        config.answers.folder.empty()
            ? plan_text(config.text, config.schedule)
            : fmt::format("{} steps of {} answers in {}", config.schedule.steps,
                          config.text.batch_size, config.answers.folder.string());
    check.summary =
        fmt::format("trains a head of type {} for {}: {}", type, config.target.string(), plan);
    if (!config.answers.folder.empty()) {
      warn_of_answers(config, check.warnings);
    }
    check_out(file, config.out);
    warn_of_schedule(config.schedule, check.warnings);
  } else {
    const TrainConfig config = load_train_config(file, overrides);
    check.summary = fmt::format("trains a model of {} layers: {}",
                                describe_shape(config.model).config.num_layers,
                                plan_text(config.text, config.schedule));
    check_out(file, config.out);
    warn_of_schedule(config.schedule, check.warnings);
  }
  return check;
}

}  // namespace specdec
