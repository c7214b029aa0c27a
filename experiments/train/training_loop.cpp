#include "experiments/train/training_loop.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/train/training_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

std::vector<at::Tensor> all_parameters(const TrainingTask& task) {
  std::vector<at::Tensor> all = task.matrices;
  all.insert(all.end(), task.others.begin(), task.others.end());
  return all;
}

int64_t count_values(const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    count += tensor.numel();
  }
  return count;
}

std::unique_ptr<torch::optim::AdamW> make_optimizer(const TrainingTask& task) {
  const auto adam = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(task.schedule.learning_rate)
            .betas({0.9, 0.95})
            .weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(task.matrices, adam(task.schedule.weight_decay));
  groups.emplace_back(task.others, adam(0.0));
  return std::make_unique<torch::optim::AdamW>(groups);
}

class TrainingLoop {
 public:
  explicit TrainingLoop(const TrainingTask& task)
      : task_(task),
        schedule_(task.schedule),
        parameters_(all_parameters(task)),
        optimizer_(make_optimizer(task)) {}

  void run() {
    int64_t step = resume();
    say(fmt::format("{}: {} parameters, {} training tokens, steps {} to {}", task_.name,
                    count_values(parameters_), task_.train_tokens, step, schedule_.steps));
    if (const std::string warning = endless_warm_up(schedule_); !warning.empty()) {
      say(fmt::format("{}: warning: {}", task_.name, warning));
    }
    started_ = std::chrono::steady_clock::now();
    first_step_ = noted_step_ = step;
    noted_ = started_;
    while (step < schedule_.steps) {
      stop_if_interrupted(step);
      train_step(step);
      ++step;
      if (step % schedule_.evaluate_every == 0 || step == schedule_.steps) {
        note(step);
      }
      if (step % schedule_.checkpoint_every == 0 && step < schedule_.steps) {
        save_state(step);
      }
    }
    save_state(step);  // whoever is cut from here on finishes again
    finish();
  }

 private:
  void say(const std::string& line) const {
    if (task_.log) {
      task_.log(line);
    }
  }

  double learning_rate(int64_t step) const {
    if (step < schedule_.warm_up_steps) {
      return schedule_.learning_rate * static_cast<double>(step + 1) /
             static_cast<double>(schedule_.warm_up_steps);
    }
    const double span =
        static_cast<double>(std::max<int64_t>(1, schedule_.steps - schedule_.warm_up_steps));
    const double done = static_cast<double>(step - schedule_.warm_up_steps) / span;
    return schedule_.learning_rate * (0.1 + 0.45 * (1.0 + std::cos(M_PI * done)));
  }

  /// Takes a step of training. Nothing of it is read by the host, which goes on to the next step
  /// while a device computes.
  void train_step(int64_t step) {
    for (auto& group : optimizer_->param_groups()) {
      group.options().set_lr(learning_rate(step));
    }
    optimizer_->zero_grad();
    const at::Tensor value = task_.loss(step);
    value.backward();
    clip_gradients();
    optimizer_->step();
    const at::Tensor loss = value.detach().to(at::kFloat);
    mean_loss_ = mean_loss_.defined() ? 0.98 * mean_loss_ + 0.02 * loss : loss;
  }

  void clip_gradients() {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        gradients.push_back(parameter.grad());
      }
    }
    at::Tensor squares = at::zeros({}, parameters_.front().options().dtype(at::kFloat));
    for (const at::Tensor& gradient : gradients) {
      squares += gradient.pow(2).sum();
    }
    const at::Tensor factor = (schedule_.clip_norm / squares.sqrt()).clamp_max(1.0);
    for (at::Tensor& gradient : gradients) {
      gradient.mul_(factor);
    }
  }

  /// The running mean of the loss, where it is reported or saved.
  double read_loss(int64_t step) const {
    const double loss = mean_loss_.item<double>();
    if (!std::isfinite(loss)) {
      throw Error(fmt::format("the loss is {} at step {}, or was before it: lower learning_rate.",
                              loss, step));
    }
    return loss;
  }

  void note(int64_t step) {
    const double loss = read_loss(step);
    const std::chrono::duration<double> steps = std::chrono::steady_clock::now() - noted_;
    const double step_seconds = steps.count() / static_cast<double>(step - noted_step_);
    const HeldOutReport held_out = task_.evaluate();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started_;
    const double left = elapsed.count() / static_cast<double>(step - first_step_) *
                        static_cast<double>(schedule_.steps - step);
    say(fmt::format("step {:>6}/{}  loss {:.3f}{}  {:.0f} s left", step, schedule_.steps, loss,
                    held_out.text, left));
    const nlohmann::json line = {{"step", step},
                                 {"loss", loss},
                                 {"step_seconds", step_seconds},
                                 {"held_out", held_out.figures}};
    noted_ = std::chrono::steady_clock::now();
    noted_step_ = step;
    std::ofstream stream(task_.out / kTrainingLog, std::ios::app);
    stream << line.dump() << std::endl;
    if (!stream) {
      throw Error(fmt::format("{}: cannot be written; is the disk full?",
                              (task_.out / kTrainingLog).string()));
    }
  }

  fs::path state_path() const { return task_.out / kTrainingState; }

  void save_state(int64_t step) {
    torch::serialize::OutputArchive archive;
    archive.write("step", at::scalar_tensor(step, at::kLong));
    archive.write("identity", c10::IValue(task_.identity));
    if (step > 0) {
      archive.write("loss", at::scalar_tensor(read_loss(step), at::kDouble));
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      archive.write(fmt::format("parameter{}", i), parameters_[i].detach());
    }
    torch::serialize::OutputArchive optimizer;
    optimizer_->save(optimizer);
    archive.write("optimizer", optimizer);
    const fs::path temporary = state_path().string() + ".new";
    archive.save_to(temporary.string());
    fs::rename(temporary, state_path());
  }

  void stop_if_interrupted(int64_t step) {
    if (InterruptGuard::is_raised()) {
      save_state(step);
      say(fmt::format("step {:>6}/{}: {} is written; the same command resumes from it", step,
                      schedule_.steps, state_path().string()));
      throw Interrupted{};
    }
  }

  int64_t resume() {
    if (!fs::exists(state_path())) {
      fs::resize_file(task_.out / kTrainingLog, 0);  // of a training that stored no state
      return 0;
    }
    torch::serialize::InputArchive archive;
    c10::IValue saved;
    if (!read_identity(archive, saved)) {
      throw Error(
          fmt::format("{}: damaged, or no state of a training; remove it to train from the start.",
                      state_path().string()));
    }
    if (saved.toStringRef() != task_.identity) {
      throw Error(
          fmt::format("{} was left by a training with another config; remove it, or set "
                      "another 'out'.",
                      state_path().string()));
    }
    return restore(archive);
  }

  bool read_identity(torch::serialize::InputArchive& archive, c10::IValue& identity) const {
    try {
      archive.load_from(state_path().string(), at::Device(at::kCPU));  // whatever device wrote it
    } catch (const c10::Error&) {
      return false;
    }
    return archive.try_read("identity", identity) && identity.isString();
  }

  /// Takes parameters, optimizer and step over.
  int64_t restore(torch::serialize::InputArchive& archive) {
    at::Tensor step;
    at::Tensor loss;
    archive.read("step", step);
    if (archive.try_read("loss", loss)) {
      mean_loss_ = loss.to(parameters_.front().device(), at::kFloat);
    }
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor value;
      archive.read(fmt::format("parameter{}", i), value);
      parameters_[i].copy_(value);
    }
    torch::serialize::InputArchive optimizer;
    archive.read("optimizer", optimizer);
    optimizer_->load(optimizer);
    place_moments();
    return step.item<int64_t>();
  }

  /// The optimizer's state, which was read to the host, goes to the parameters' devices.
  void place_moments() {
    for (const at::Tensor& parameter : parameters_) {
      const auto found = optimizer_->state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer_->state().end()) {
        auto& state = static_cast<torch::optim::AdamWParamState&>(*found->second);
        state.exp_avg(state.exp_avg().to(parameter.device()));
        state.exp_avg_sq(state.exp_avg_sq().to(parameter.device()));
      }
    }
  }

  void finish() {
    say(fmt::format("step {:>6}/{}: storing the weights and reading all held-out text",
                    schedule_.steps, schedule_.steps));
    const HeldOutReport held_out = task_.finish();
    say("stored weights on all held-out text:" + held_out.text);
    const nlohmann::json summary = {{"name", task_.name},
                                    {"parameters", count_values(parameters_)},
                                    {"train_tokens", task_.train_tokens},
                                    {"steps", schedule_.steps},
                                    {"tokens_per_step", task_.tokens_per_step},
                                    {"held_out", held_out.figures}};
    write_text_file(task_.out / "training.json", summary.dump(2) + "\n");
    fs::remove(state_path());
  }

  const TrainingTask& task_;
  const TrainSchedule& schedule_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point noted_;  // since then, steps alone
  int64_t noted_step_ = 0;
  int64_t first_step_ = 0;
  at::Tensor mean_loss_;  // of the last steps, float32 [] where the parameters lie
};

}  // namespace

void run_training(const TrainingTask& task) { TrainingLoop(task).run(); }

}  // namespace specdec
