#include "experiments/cli/generation_json.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "decoders/analysis/sequence_score.h"
#include "experiments/run/prompts.h"

namespace specdec {
namespace {

nlohmann::json hypotheses_json(const Generation& generation) {
  auto hypotheses = nlohmann::json::array();
  for (const Hypothesis& hypothesis : generation.hypotheses) {
    hypotheses.push_back({{"tokens", hypothesis.tokens}, {"score", hypothesis.score}});
  }
  return hypotheses;
}

/// The `count` most likely tokens of a row [vocab] of log-probabilities; ties to the lower id.
nlohmann::json top_json(std::span<const double> log_probs, int64_t count) {
  std::vector<Token> tokens(log_probs.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end = tokens.begin() + std::min(count, static_cast<int64_t>(tokens.size()));
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](Token a, Token b) {
    const double of_a = log_probs[static_cast<size_t>(a)];
    const double of_b = log_probs[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  auto top = nlohmann::json::array();
  for (auto token = tokens.begin(); token != end; ++token) {
    top.push_back({{"token", *token}, {"log_prob", log_probs[static_cast<size_t>(*token)]}});
  }
  return top;
}

}  // namespace

nlohmann::json logprobs_json(LanguageModel& target, const std::vector<Token>& prompt,
                             const std::vector<Token>& output, int64_t alternatives) {
  std::vector<Token> sequence = prompt;
  sequence.insert(sequence.end(), output.begin(), output.end());
  LogProbReader reader(target, sequence, static_cast<int64_t>(prompt.size()));
  auto rows = nlohmann::json::array();
  while (!reader.done()) {
    const auto first = static_cast<size_t>(reader.position());
    const at::Tensor log_probs = reader.next().contiguous();
    const auto vocab = static_cast<size_t>(log_probs.size(1));
    for (size_t row = 0; row < static_cast<size_t>(log_probs.size(0)); ++row) {
      const std::span<const double> distribution(log_probs.const_data_ptr<double>() + row * vocab,
                                                 vocab);
      const Token token = sequence[first + row];
      rows.push_back({{"token", token}, {"log_prob", distribution[static_cast<size_t>(token)]}});
      if (alternatives > 0) {
        rows.back()["top"] = top_json(distribution, alternatives);
      }
    }
  }
  return rows;
}

nlohmann::json generation_json(const Generation& generation, const Request& request) {
  nlohmann::json json = {{"tokens", generation.tokens},
                         {"text", decode_text(request.tokenizer, generation.tokens)},
                         {"stop_reason", stop_reason_name(generation.stop_reason)}};
  if (!generation.hypotheses.empty()) {
    json["hypotheses"] = hypotheses_json(generation);
  }
  return json;
}

}  // namespace specdec
