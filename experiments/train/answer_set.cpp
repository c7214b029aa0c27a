#include "experiments/train/answer_set.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "experiments/train/answer_prompts.h"
#include "experiments/train/head_loss.h"

namespace specdec {
namespace {

constexpr size_t kSortedBatches = 16;  // whose answers are sorted by length together

template <class T>
void shuffle(std::vector<T>& values, std::mt19937_64& generator) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[generator() % i]);
  }
}

/// Throws Error for an answer that is none of the target's, or whose features are not there.
void check_answer(const AnswerRecord& record, const std::filesystem::path& folder,
                  const TransformerConfig& target, int64_t rows) {
  const auto fail = [&](const std::string& what) {
    throw Error(
        fmt::format("{}: the answer of prompt {} {}; remove the folder to make the answers "
                    "anew.",
                    folder.string(), record.number, what));
  };
  for (const Token token : record.tokens) {
    if (token < 0 || token >= target.vocab_size) {
      fail(fmt::format("holds the token {}, and the target has {}", token, target.vocab_size));
    }
  }
  const int64_t needed = std::max<int64_t>(0, std::ssize(record.tokens) - 1);
  if (record.first_row > rows - needed) {
    fail(fmt::format("has its features from row {} on, of {} rows", record.first_row, rows));
  }
}

/// Throws Error for layers that the target does not have.
void check_layers(const std::vector<int64_t>& layers, const std::filesystem::path& folder,
                  int64_t count) {
  for (const int64_t layer : layers) {
    if (layer < 0 || layer >= count) {
      throw Error(
          fmt::format("{}: answers.json names layer {}, but the target has {} layers; remove "
                      "the folder to make the answers anew.",
                      folder.string(), layer, count));
    }
  }
}

/// Takes the tokens out of answers that hold a run of tokens of an excluded one.
void exclude_copies(const AnswerSelection& choice, std::vector<AnswerRecord>& records) {
  if (choice.exclude.empty()) {
    return;
  }
  ExcludedRuns runs(choice.exclude_run);
  for (const auto& file : choice.exclude) {
    for (const std::vector<Token>& tokens : read_generated_tokens(file)) {
      runs.add(tokens);
    }
  }
  for (AnswerRecord& record : records) {
    if (runs.found_in(TokenSpan(record.tokens).subspan(static_cast<size_t>(record.answer)))) {
      record.tokens.clear();
      record.log_sums.clear();
      record.end = "excluded answer";
    }
  }
}

}  // namespace

std::string answer_kind(const AnswerRecord& record) {
  return fmt::format("{}, {}", record.own ? "own prompt" : "text",
                     record.temperature == 0.0 ? "greedy" : "temperature 1");
}

std::vector<AnswerRecord> require_answers(const AnswerSelection& choice,
                                          const std::vector<int64_t>& layers) {
  const auto recorded = parse_answer_identity(choice.folder).layers;
  for (const int64_t layer : layers) {
    if (std::find(recorded.begin(), recorded.end(), layer) == recorded.end()) {
      throw Error(
          fmt::format("head.layers names layer {}, whose outputs {} does not hold: it "
                      "has those of [{}].",
                      layer, choice.folder.string(), fmt::join(recorded, ", ")));
    }
  }
  auto records = read_answer_records(choice.folder);
  if (choice.prompts > 0) {
    const auto later = [&](const AnswerRecord& record) { return record.number >= choice.prompts; };
    records.erase(std::remove_if(records.begin(), records.end(), later), records.end());
  }
  if (std::ssize(records) < choice.prompts) {
    throw Error(
        fmt::format("{}: {} of the first {} prompts are answered; go on with specdec "
                    "answers, or set a smaller answers.prompts.",
                    choice.folder.string(), records.size(), choice.prompts));
  }
  exclude_copies(choice, records);
  return records;
}

AnswerSet::AnswerSet(const std::filesystem::path& folder, std::vector<AnswerRecord> records,
                     const TransformerTensors& target, double held_out)
    : target_(target) {
  const AnswerIdentity identity = parse_answer_identity(folder);
  if (identity.target != target.fingerprint) {
    throw Error(
        fmt::format("{} holds answers of another target (weights {}) than this one "
                    "(weights {}): make its own with specdec answers.",
                    folder.string(), identity.target, target.fingerprint));
  }
  if (identity.suppressed != target.config.suppressed_ids) {
    throw Error(
        fmt::format("{} holds answers for which other tokens were suppressed than the target's "
                    "checkpoint says now: make them anew with specdec answers.",
                    folder.string()));
  }
  layers_ = identity.layers;
  check_layers(layers_, folder, target.config.num_layers);
  const auto width = (static_cast<int64_t>(layers_.size()) + 1) * target.config.hidden_size;
  features_ = map_answer_features(folder, width);
  for (AnswerRecord& record : records) {
    check_answer(record, folder, target.config, features_.size(0));
    add(std::move(record), std::lround(1.0 / held_out));
  }
  if (train_.empty() || held_out_.empty()) {
    throw Error(
        fmt::format("{} holds {} answers to train on and {} held out; make more with "
                    "specdec answers.",
                    folder.string(), train_.size(), held_out_.size()));
  }
}

void AnswerSet::add(AnswerRecord record, int64_t held_out_every) {
  if (record.tokens.empty()) {
    ++left_out_[record.end];
    return;
  }
  const uint64_t hash =
      hash_bytes(0, record.tokens.data(), static_cast<size_t>(record.answer) * sizeof(Token));
  if (prompts_[hash]++ > 0) {
    ++left_out_["repeated"];
  } else if (record.number % held_out_every == held_out_every - 1) {
    held_out_.push_back(std::move(record));
  } else {
    train_.push_back(std::move(record));
  }
}

int64_t AnswerSet::train_tokens() const {
  int64_t tokens = 0;
  for (const AnswerRecord& record : train_) {
    tokens += static_cast<int64_t>(record.log_sums.size());
  }
  return tokens;
}

std::string AnswerSet::text() const {
  std::string text = fmt::format("{} answers of {} tokens, and {} held out", train_.size(),
                                 train_tokens(), held_out_.size());
  for (const auto& [reason, count] : left_out_) {
    text += fmt::format("; left out: {} ({})", count, reason);
  }
  return text;
}

std::vector<std::vector<const AnswerRecord*>> AnswerSet::epoch(int64_t number, int64_t count,
                                                               uint64_t seed) const {
  std::mt19937_64 generator(seed * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(number));
  std::vector<const AnswerRecord*> order;
  for (const AnswerRecord& record : train_) {
    order.push_back(&record);
  }
  shuffle(order, generator);
  const auto size = static_cast<size_t>(count);
  std::vector<std::vector<const AnswerRecord*>> batches;
  for (size_t begin = 0; begin < order.size(); begin += size * kSortedBatches) {
    const size_t end = std::min(order.size(), begin + size * kSortedBatches);
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(end);
    std::stable_sort(first, last, [](const AnswerRecord* a, const AnswerRecord* b) {
      return a->tokens.size() < b->tokens.size();
    });
    for (size_t i = begin; i < end; i += size) {
      batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(i),
                           order.begin() + static_cast<std::ptrdiff_t>(std::min(end, i + size)));
    }
  }
  shuffle(batches, generator);
  return batches;
}

TargetBatch AnswerSet::batch(int64_t step, int64_t count, uint64_t seed) const {
  // The number of batches does not depend on the epoch.
  const auto batches = static_cast<int64_t>(epoch(0, count, seed).size());
  return batch(epoch(step / batches, count, seed)[static_cast<size_t>(step % batches)]);
}

TargetBatch AnswerSet::batch(const std::vector<const AnswerRecord*>& records) const {
  size_t longest = 0;
  for (const AnswerRecord* record : records) {
    longest = std::max(longest, record->tokens.size());
  }
  const auto rows = static_cast<int64_t>(records.size());
  const auto length = static_cast<int64_t>(longest) - 1;
  const at::Tensor tokens = at::zeros({rows, length + 1}, at::kLong);
  at::Tensor features = at::zeros({rows, length, features_.size(1)}, features_.options());
  std::vector<int64_t> places;
  std::vector<float> log_sums;
  for (int64_t row = 0; row < rows; ++row) {
    const AnswerRecord& record = *records[static_cast<size_t>(row)];
    const auto fed = static_cast<int64_t>(record.tokens.size()) - 1;
    std::copy(record.tokens.begin(), record.tokens.end(), tokens[row].mutable_data_ptr<int64_t>());
    features[row].narrow(0, 0, fed).copy_(features_.narrow(0, record.first_row, fed));
    log_sums.insert(log_sums.end(), record.log_sums.begin(), record.log_sums.end());
    for (int64_t place = record.answer - 1; place < fed; ++place) {
      places.push_back(row * length + place);
    }
  }
  features = features.to(target_.place.device).to(at::kFloat);
  TargetBatch batch{.tokens = tokens, .target = {}, .distribution = {}};
  const int64_t hidden = target_.config.hidden_size;
  batch.target.layers.resize(static_cast<size_t>(target_.config.num_layers));
  for (size_t i = 0; i < layers_.size(); ++i) {
    batch.target.layers[static_cast<size_t>(layers_[i])] =
        features.narrow(-1, static_cast<int64_t>(i) * hidden, hidden);
  }
  batch.target.hidden = features.narrow(-1, features_.size(1) - hidden, hidden);
  batch.places = at::tensor(places, at::kLong);
  batch.log_sums = at::tensor(log_sums, at::kFloat);
  SPECDEC_CHECK(batch.places.numel() == batch.log_sums.numel(), "an answer's places");
  return batch.to(target_.place.device);
}

at::Tensor AnswerSet::masses(int64_t most) const {
  const c10::NoGradGuard no_grad;
  const int64_t every = (train_tokens() + most - 1) / most;
  at::Tensor sums = at::zeros({target_.config.vocab_size}, at::kDouble);
  for (const AnswerRecord& record : train_) {
    const TargetBatch one = batch({&record});
    const auto places =
        one.places.slice(0, record.number % every, {}, every).to(target_.place.device);
    if (places.numel() > 0) {
      const auto logits =
          reference_head(target_, one.target.hidden.flatten(0, 1).index_select(0, places));
      sums += at::softmax(decoded_logits(logits, target_), -1).sum(0).to(at::kCPU, at::kDouble);
    }
  }
  return sums;
}

}  // namespace specdec
