// Trainings on a device of which the host reads nothing but what it reports and saves.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <ostream>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "core/transformer/tensor_source.h"
#include "experiments/train/answers.h"
#include "experiments/train/head_trainer.h"
#include "experiments/train/tokenizer_training.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_llama.h"
#include "tests/support/watched_device.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDeviceVocab = 340;

struct DeviceCase {
  std::string name;
  std::string yaml;         ///< of a head, or of a model
  bool reads = false;       ///< in each step, as it has to
  std::string target = {};  ///< "" = a random Llama
};

void PrintTo(const DeviceCase& one, std::ostream* out) { *out << one.name; }

class TrainingDeviceTest : public testing::TestWithParam<DeviceCase> {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    shared = new TemporaryFolder();
    std::string text;
    for (int i = 0; i < 120; ++i) {
      text += "The king said to the queen: what news of ship " + std::to_string(i) + "?\n";
    }
    const auto file = shared->write("text.txt", text);
    write_tiny_llama(llama(), kDeviceVocab);
    train_tokenizer({.texts = {text}, .vocab_size = kDeviceVocab}, llama());
    const auto answers = shared->write(
        "answers.yaml", "out: " + (shared->path() / "answers").string() +
                            "\ntarget: {weights: " + llama().string() +
                            "}\nlayers: [0, 1]\nprompts: 12\nrows: 4\nown_prompts: 0\ntexts: [" +
                            file.string() +
                            "]\ntext_tokens: [10, 20]\nmax_answer_tokens: 12\n"
                            "max_length: 256\n");
    make_answers(load_answer_plan(answers, {}), {});
  }
  static void TearDownTestSuite() { delete shared; }

  static fs::path llama() { return shared->path() / "llama"; }

  std::string yaml() const {
    const std::string data =
        "\ndata: [{kind: prose, file: " + (shared->path() / "text.txt").string() +
        "}]\nsequence_length: 32\n";
    if (GetParam().yaml.rfind("model:", 0) == 0) {
      std::string model = GetParam().yaml;
      if (const size_t teacher = model.find("TARGET"); teacher != std::string::npos) {
        model.replace(teacher, 6, llama().string());
      }
      return model + "\ntokenizer: {from: " + llama().string() + "}" + data;
    }
    const bool answers = GetParam().name.find("answers") != std::string::npos;
    const std::string target = GetParam().target.empty() ? llama().string() : GetParam().target;
    return "head: " + GetParam().yaml + "\nevaluate_depth: 2\ntarget: {weights: " + target + "}" +
           (answers ? "\nanswers: {folder: " + (shared->path() / "answers").string() +
                          "}\nheld_out: 0.25\n"
                    : data);
  }

  /// The weights that so many steps lead to, in one row; undefined where the training is stopped in
  /// the evaluation of step `stop`.
  at::Tensor train(const std::string& out, at::Device device, int64_t stop = 0,
                   const std::string& steps = "steps=4") const {
    const auto file =
        folder_.write("train.yaml", yaml() +
                                        "batch_size: 2\nlearning_rate: 0.01\nwarm_up_steps: 1\n"
                                        "evaluate_every: 1\ncheckpoint_every: 1\nout: " +
                                        (folder_.path() / out).string());
    struct Stop {};
    TrainOptions options;
    options.device = device;
    options.log = [&](const std::string& line) {
      if (stop > 0 && line.rfind(fmt::format("step {:>6}", stop), 0) == 0) {
        throw Stop();
      }
    };
    std::vector<std::string> overrides = {steps};
    if (steps != "steps=4") {
      overrides.insert(overrides.end(), {"evaluate_every=100", "checkpoint_every=100"});
    }
    try {
      if (describes_head(file, {})) {
        train_head(load_head_train_config(file, overrides), options);
      } else {
        train_model(load_train_config(file, overrides), options);
      }
    } catch (const Stop&) {
      return {};
    }
    std::vector<at::Tensor> all;
    for (const char* name : {"mtp.safetensors", "adapter_model.safetensors", "model.safetensors"}) {
      if (fs::exists(folder_.path() / out / name)) {
        const SafetensorsFile weights(folder_.path() / out / name);
        for (const TensorEntry& entry : weights.tensors()) {
          all.push_back(mapped_tensor(entry).to(at::kFloat).flatten());
        }
      }
    }
    return at::cat(all);
  }

  static TemporaryFolder* shared;
  TemporaryFolder folder_;
};
TemporaryFolder* TrainingDeviceTest::shared = nullptr;

TEST_P(TrainingDeviceTest, GoesOnWhereAnotherDeviceStopped) {
  const at::Tensor wanted = train("whole", at::kCPU);
  EXPECT_FALSE(train("parts", at::kCPU, 2).defined());
  EXPECT_FALSE(train("parts", watched_device(), 3).defined());
  const at::Tensor difference = (train("parts", at::kCPU) - wanted).abs();
  // A step without what the optimizer knows of those before changes most numbers by 0.01.
  EXPECT_LT(difference.mean().item<double>(), 1e-4) << "numbers may lie otherwise in memory";
}

TEST_P(TrainingDeviceTest, AStepIsReadWhereItIsReported) {
  const auto reads = [&](const std::string& steps) {
    const int64_t before = host_reads();
    EXPECT_TRUE(train(steps, watched_device(), 0, steps).defined());
    return host_reads() - before;
  };
  const int64_t few = reads("steps=1");
  EXPECT_GT(few, 0) << "the evaluation";
  EXPECT_EQ(reads("steps=3") > few, GetParam().reads);
}

std::vector<DeviceCase> device_cases() {
  return {
      {"medusa", "{type: medusa, num_heads: 2}"},
      {"eagle", "{type: eagle, draft_vocab_size: 300}"},
      {"eagle3", "{type: eagle3, layers: [0, 2], draft_vocab_size: 300}"},
      {"eagle3_answers", "{type: eagle3, layers: [0, 1], draft_vocab_size: 300, stored: int8}"},
      {"mtp", "{type: mtp, num_layers: 2}"},
      {"self",
       "{type: self, layers: 2, rank: 4}\nself_distillation: {share: 0.5, sequences: 2, "
       "prompt_tokens: 4, held_out_sequences: 1}"},
      {"assistant",
       "{type: gemma4_assistant, hidden_size: 16, intermediate_size: 24, clusters: 64, "
       "chosen_clusters: 8}",
       false, "models/gemma4/target"},
      {"gemma3",
       "model: {hidden_size: 16, intermediate_size: 32, layers: 2, heads: 2, head_dim: "
       "8}\nrepetition_share: 0.1\nteacher: {weights: TARGET}"},
      {"continuations",
       "model: {hidden_size: 16, intermediate_size: 32, layers: 2, heads: 2, "
       "head_dim: 8}\ncontinuation_share: 1",
       true},
      {"experts",
       "model: {family: gemma4, hidden_size: 16, intermediate_size: 16, layers: 2, "
       "heads: 2, head_dim: 8, experts: {count: 4, chosen: 2, intermediate_size: 16}}\n"
       "balance_share: 0.01",
       true},
      {"recurrent",
       "model: {family: recurrent_gemma, hidden_size: 16, intermediate_size: 32, "
       "layers: 3, heads: 2, head_dim: 8, sliding_window: 8}"},
  };
}

INSTANTIATE_TEST_SUITE_P(All, TrainingDeviceTest, testing::ValuesIn(device_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace specdec
