#include "experiments/train/self_distillation.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "core/randomness.h"
#include "core/sampling.h"
#include "core/transformer/tensor_source.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/train/continuations.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRowsAtOnce = 32;

/// Everything that the sequences depend on.
std::string identity(const TransformerWeights& target, const TextData& data, const TextPlan& plan,
                     const SelfDistillation& options) {
  nlohmann::json out = {
      {"target", target.fingerprint},         {"seed", plan.seed},
      {"tokens", data.train_tokens()},        {"sequence_length", plan.sequence_length},
      {"sequences", options.sequences},       {"prompt_tokens", options.prompt_tokens},
      {"temperatures", options.temperatures}, {"held_out_sequences", options.held_out_sequences}};
  if (!target.config.suppressed_ids.empty()) {
    out["suppressed"] = target.config.suppressed_ids;
  }
  return out.dump();
}

/// Continues all rows, some at a time.
at::Tensor continue_all(const std::shared_ptr<const TransformerWeights>& target,
                        const at::Tensor& prompts, const TextPlan& plan,
                        const SelfDistillation& options, uint64_t seed,
                        const std::function<void(const std::string&)>& log) {
  std::vector<at::Tensor> done;
  for (int64_t row = 0; row < prompts.size(0); row += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, prompts.size(0) - row);
    std::vector<double> temperatures;
    for (int64_t i = row; i < row + rows; ++i) {
      const auto turn = static_cast<size_t>(i) % options.temperatures.size();
      temperatures.push_back(options.temperatures[turn]);
    }
    done.push_back(continue_by_distribution(target, prompts.narrow(0, row, rows),
                                            plan.sequence_length + 1, temperatures, seed, row));
    if (log && (row / kRowsAtOnce) % 8 == 7) {
      log(fmt::format("the target wrote {} of {} sequences", row + rows, prompts.size(0)));
    }
  }
  return at::cat(done);
}

/// [n, prompt_tokens] from the beginnings of held-out windows, spread over the text.
at::Tensor held_out_prompts(const HeldOut& held, const SelfDistillation& options,
                            const std::string& kind) {
  std::vector<const std::vector<Token>*> windows;
  for (const auto& window : held.windows) {
    if (static_cast<int64_t>(window.size()) >= options.prompt_tokens) {
      windows.push_back(&window);
    }
  }
  if (windows.empty()) {
    throw Error(
        fmt::format("the held-out text of kind '{}' has no window of {} tokens: lower "
                    "self_distillation.prompt_tokens.",
                    kind, options.prompt_tokens));
  }
  const auto all = static_cast<int64_t>(windows.size());
  const int64_t rows = std::min(all, options.held_out_sequences);
  at::Tensor prompts = at::empty({rows, options.prompt_tokens}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const auto& window = *windows[static_cast<size_t>(row * all / rows)];
    std::copy(window.begin(), window.begin() + options.prompt_tokens,
              prompts[row].mutable_data_ptr<int64_t>());
  }
  return prompts;
}

bool is_complete(const SafetensorsFile& file, const std::string& wanted) {
  const auto found = file.metadata().find("identity");
  return found != file.metadata().end() && found->second == wanted;
}

at::Tensor read_tokens(const TensorEntry& entry) {
  return mapped_tensor(entry).to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

SelfGenerated read_generated(const SafetensorsFile& file) {
  SelfGenerated out;
  for (const TensorEntry& entry : file.tensors()) {
    if (entry.name == "train") {
      out.train = read_tokens(entry);
    } else {
      out.held_out[entry.name] = read_tokens(entry);
    }
  }
  return out;
}

void write_generated(const SelfGenerated& generated, const fs::path& path,
                     const std::string& identity) {
  std::vector<at::Tensor> kept;
  std::vector<TensorToWrite> list;
  const auto add = [&](const std::string& name, const at::Tensor& tokens) {
    kept.push_back(tokens.to(at::kInt).contiguous());
    const at::Tensor& stored = kept.back();
    list.push_back({name,
                    DType::kI32,
                    stored.sizes().vec(),
                    {static_cast<const std::byte*>(stored.const_data_ptr()), stored.nbytes()}});
  };
  add("train", generated.train);
  for (const auto& [kind, tokens] : generated.held_out) {
    add(kind, tokens);
  }
  if (path.has_parent_path()) {
    fs::create_directories(path.parent_path());
  }
  write_safetensors(path, list, {{"identity", identity}});
}

}  // namespace

at::Tensor continue_by_distribution(std::shared_ptr<const TransformerWeights> target,
                                    const at::Tensor& prompts, int64_t total,
                                    const std::vector<double>& temperatures, uint64_t seed,
                                    int64_t first_row) {
  const int64_t rows = prompts.size(0);
  SPECDEC_CHECK(rows == static_cast<int64_t>(temperatures.size()), "a temperature for each row");
  std::vector<CounterRandomness> random;
  for (int64_t row = 0; row < rows; ++row) {
    random.emplace_back(seed, static_cast<uint32_t>(first_row + row));
  }
  const int64_t new_tokens = total - prompts.size(1);
  const TransformerOptions options{.max_length = total,
                                   .suppressed = target->config.suppressed_ids};
  TransformerModel model(std::move(target), paged_kv(), options);
  std::vector<double> distribution(static_cast<size_t>(model.vocab_size()));
  return continue_prompts(model, prompts, new_tokens, [&](const at::Tensor& logits, int64_t at) {
    InterruptGuard::check();
    at::Tensor next = at::empty({rows}, at::kLong);
    for (int64_t row = 0; row < rows; ++row) {
      const auto index = static_cast<size_t>(row);
      const SamplingParams sampling{.temperature = temperatures[index]};
      target_distribution(logits[row], {}, sampling, distribution);
      random[index].seek(at, Purpose::kSample);
      next[row] = sampling.greedy() ? argmax(distribution) : random[index].draw(distribution);
    }
    return next;
  });
}

SelfGenerated self_generate(const std::shared_ptr<const TransformerWeights>& target,
                            const TextData& data, const TextPlan& plan,
                            const SelfDistillation& options,
                            const std::function<void(const std::string&)>& log) {
  const std::string wanted = identity(*target, data, plan, options);
  if (!options.file.empty() && fs::exists(options.file)) {
    const SafetensorsFile file(options.file);
    if (is_complete(file, wanted)) {
      return read_generated(file);
    }
  }
  SelfGenerated out;
  const at::Tensor prompts = data.rows(options.sequences, options.prompt_tokens, plan.seed);
  out.train = continue_all(target, prompts, plan, options, plan.seed, log);
  for (const auto& [kind, held] : data.held_out()) {
    out.held_out[kind] = continue_all(target, held_out_prompts(held, options, kind), plan, options,
                                      plan.seed + 1, {});
  }
  if (!options.file.empty()) {
    write_generated(out, options.file, wanted);
  }
  return out;
}

}  // namespace specdec
