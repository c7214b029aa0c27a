// Adds a vector to the stream behind a layer, and records what comes out of it: steer_layers MODEL
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/layer_hook.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"

using namespace specdec;

namespace {

/// Adds a vector [hidden] to the output of a layer.
class SteeringVector final : public LayerHook {
 public:
  SteeringVector(int64_t layer, Tensor vector, std::string name)
      : layer_(layer), vector_(std::move(vector)), name_(std::move(name)) {}
  std::string fingerprint() const override { return name_; }
  void run(LayerPass& pass) override {
    pass.evaluate();
    if (pass.layer() == layer_) {
      pass.set_residual(pass.residual() + vector_);
    }
  }

 private:
  int64_t layer_;
  Tensor vector_;
  std::string name_;
};

/// Keeps the newest output of every layer, and changes nothing.
class ActivationRecorder final : public LayerHook {
 public:
  std::string fingerprint() const override { return ""; }
  void run(LayerPass& pass) override {
    pass.evaluate();
    outputs.push_back(pass.residual().clone());
  }

  std::vector<Tensor> outputs;
};

void steer(const char* folder) {
  const c10::InferenceMode guard;
  const auto weights = load_model(folder);
  const auto recorder = std::make_shared<ActivationRecorder>();
  const Tensor vector = at::ones({weights->config.hidden_size}, weights->compute_dtype());
  const auto steering = std::make_shared<SteeringVector>(0, vector, "ones after layer 0");
  TransformerModel plain(weights, paged_kv());
  TransformerModel steered(weights, paged_kv(), {.hooks = {recorder, steering}});
  const std::vector<Token> prompt = {2, 5, 7};
  const bool changed =
      !at::equal(plain.prefill_get_last_logits(prompt), steered.prefill_get_last_logits(prompt));
  std::cout << recorder->outputs.size() << " layers, " << (changed ? "other" : "the same")
            << " logits\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: steer_layers MODEL\n";
    return 2;
  }
  try {
    steer(argv[1]);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
