#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace specdec {

class ConfigNode;
struct TransformerConfig;

/// One file of training text. Its last part is held out and never trained on.
struct TextSource {
  std::string kind;  ///< reported apart: "prose", "json"
  std::filesystem::path file;
  bool records = false;  ///< each line is a text of its own, ended by <eos>; else one long text
};

/// The text that a training reads and how it is cut into batches; defaults live here.
struct TextPlan {
  uint64_t seed = 0;
  std::vector<TextSource> sources;
  double held_out = 0.05;         ///< share of each file's bytes, at its end
  int64_t sequence_length = 256;  ///< tokens
  int64_t batch_size = 8;         ///< sequences
};

/// How parameters follow their gradients; defaults live here.
struct TrainSchedule {
  int64_t steps = 1000;
  int64_t warm_up_steps = 100;
  double learning_rate = 2e-3;     ///< at its peak; cosine down to a tenth of it
  double weight_decay = 0.1;       ///< of matrices; not of embeddings, norms and biases
  double clip_norm = 1.0;          ///< of the gradient
  int64_t evaluate_every = 250;    ///< steps; a quick look at the held-out figures
  int64_t checkpoint_every = 250;  ///< steps; an interrupted training resumes from there
};

/// How a small Gemma is trained; defaults live here.
struct TrainConfig {
  std::string name;
  std::filesystem::path out;  ///< the checkpoint folder
  std::string model;          ///< see read_model_shape
  TextPlan text;
  TrainSchedule schedule;
  int64_t tokenizer_vocab_size = 2048;   ///< of a tokenizer that is trained first
  std::filesystem::path tokenizer_from;  ///< or: a checkpoint folder whose tokenizer is taken over
  bool bfloat16_products = false;        ///< multiply the layers' matrices in bfloat16: faster
  std::filesystem::path teacher;  ///< "" or a checkpoint folder whose distributions are learned too
  double teacher_share = 0.0;     ///< of the loss: KL(teacher || student) (Hinton et al., 2015)
  double repetition_share = 0.0;  ///< of the loss: token unlikelihood (Welleck et al., 2020, eq. 4)
  double balance_share = 0.0;     ///< of the loss: expert_balance_loss, for experts alone
  double continuation_share = 0.0;  ///< of the loss: sequence unlikelihood of greedy continuations
  std::filesystem::path initial;  ///< "" or a checkpoint folder whose weights training starts from
};

// What every kind of training reads from its YAML's top level.
TextPlan read_text_plan(const ConfigNode& node);
/// Keys that are missing have the values of `defaults`.
TrainSchedule read_schedule(const ConfigNode& node, const TrainSchedule& defaults = {});

/// A warning of a schedule whose warm-up takes all steps, so that the learning rate never reaches
/// its peak; "" = none.
std::string endless_warm_up(const TrainSchedule& schedule);

/// Notes a mistake where sequences are longer than a model takes that reads them: "the teacher's".
void check_sequence_length(const ConfigNode& node, const TextPlan& text, const std::string& whose,
                           const TransformerConfig& model);

/// True when the config at `file` is that of a training (of a model or a head), not an experiment.
bool describes_training(const std::filesystem::path& file,
                        const std::vector<std::string>& overrides);

/// Reads and checks a training config with `overrides` ("key=value") applied. Throws ConfigError
/// with all mistakes.
TrainConfig load_train_config(const std::filesystem::path& file,
                              const std::vector<std::string>& overrides);

}  // namespace specdec
