#include "experiments/train/dialogue.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/sampling.h"
#include "experiments/metrics/loops.h"

namespace specdec {
namespace {

constexpr size_t kFedAtOnce = 512;

/// ln of the sum of exponentials, in float64.
double log_sum(const LogitRow& logits) {
  return std::visit(
      [](const auto values) {
        const double largest = *std::max_element(values.begin(), values.end());
        double sum = 0.0;
        for (const auto value : values) {
          sum += std::exp(static_cast<double>(value) - largest);
        }
        return largest + std::log(sum);
      },
      logits.values);
}

}  // namespace

std::string answer_end_name(AnswerEnd end) {
  constexpr const char* kNames[] = {"open", "end", "loop", "length", "no prompt", "excluded"};
  return kNames[static_cast<size_t>(end)];
}

Dialogue::Dialogue(const DialogueRules& rules, AnswerPrompt prompt)
    : rules_(rules),
      prompt_(std::move(prompt)),
      random_(rules.plan.seed, static_cast<uint32_t>(prompt_.number)),
      tokens_(rules.frame.opening) {
  append(prompt_.user);
  if (!prompt_.own) {
    end_user_turn();
  }
}

TokenSpan Dialogue::next() const {
  if (end_ != AnswerEnd::kOpen) {
    return {};
  }
  const TokenSpan waiting = TokenSpan(tokens_).subspan(fed_);
  return waiting.first(std::min(waiting.size(), kFedAtOnce));
}

bool Dialogue::take(const at::Tensor& features) {
  fed_ += static_cast<size_t>(features.size(0));
  features_.push_back(features.to(at::kBFloat16));
  return fed_ == tokens_.size();
}

void Dialogue::choose(const LogitRow& logits) {
  random_.seek(static_cast<int64_t>(tokens_.size()), Purpose::kSample);
  if (answer_begin_ == 0) {
    choose_user_token(logits);
  } else {
    choose_answer_token(logits);
  }
}

at::Tensor Dialogue::features() const {
  return at::cat(features_).narrow(0, 0, static_cast<int64_t>(tokens_.size()) - 1);
}

bool Dialogue::is_end(Token token) const {
  return std::find(rules_.end_ids.begin(), rules_.end_ids.end(), token) != rules_.end_ids.end();
}

void Dialogue::choose_user_token(const LogitRow& logits) {
  const SamplingParams own_prompts{.temperature = 1.0, .top_p = 0.95};
  const Token token = token_probs(logits, {}, own_prompts).draw(random_);
  const auto written = static_cast<int64_t>(tokens_.size() - rules_.frame.opening.size());
  if (is_end(token) || token == rules_.frame.closing.front()) {
    if (written == std::ssize(prompt_.user)) {
      finish(AnswerEnd::kNoPrompt);
    } else {
      end_user_turn();
    }
  } else if (written >= rules_.plan.max_user_tokens) {
    finish(AnswerEnd::kNoPrompt);
  } else {
    tokens_.push_back(token);
  }
}

void Dialogue::end_user_turn() {
  const TokenSpan user = TokenSpan(tokens_).subspan(rules_.frame.opening.size());
  if (rules_.excluded.found_in(user)) {
    finish(AnswerEnd::kExcluded);
    return;
  }
  append(rules_.frame.closing);
  answer_begin_ = static_cast<int64_t>(tokens_.size());
}

void Dialogue::choose_answer_token(const LogitRow& logits) {
  const Token token = prompt_.temperature == 0.0
                          ? greedy_choice(logits, {}, {}).token
                          : token_probs(logits, {}, {.temperature = 1.0}).draw(random_);
  tokens_.push_back(token);
  log_sums_.push_back(static_cast<float>(log_sum(logits)));
  const TokenSpan answer = TokenSpan(tokens_).subspan(static_cast<size_t>(answer_begin_));
  const size_t kept = std::max<size_t>(1, loop_start(answer));
  if (is_end(token)) {
    finish(AnswerEnd::kEnd);
  } else if (kept < answer.size()) {
    log_sums_.resize(kept);
    tokens_.resize(static_cast<size_t>(answer_begin_) + kept);
    finish(AnswerEnd::kLoop);
  } else if (static_cast<int64_t>(answer.size()) == rules_.plan.max_answer_tokens ||
             static_cast<int64_t>(tokens_.size()) == rules_.plan.max_length) {
    finish(AnswerEnd::kLength);
  }
}

void Dialogue::finish(AnswerEnd end) {
  end_ = end;
  if (end == AnswerEnd::kNoPrompt || end == AnswerEnd::kExcluded) {
    tokens_.clear();
    log_sums_.clear();
    answer_begin_ = 0;
  }
}

}  // namespace specdec
