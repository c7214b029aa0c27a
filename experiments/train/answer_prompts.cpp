#include "experiments/train/answer_prompts.h"

#include <algorithm>
#include <cmath>

#include "core/chat.h"
#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/run/prompts.h"

namespace specdec {
namespace {

constexpr size_t kBytesPerToken = 8;  // more than texts have, so that a piece is long enough

/// {} is the text.
constexpr const char* kInstructions[] = {
    "Summarize the following text:\n\n{}",
    "{}\n\nSummarize the text above in three sentences.",
    "Write a short summary of this passage, in plain modern English.\n\n{}",
    "{}\n\nTL;DR:",
    "What are the main points of the following text? Answer with a list.\n\n{}",
    "Answer the question from the text alone.\n\nText: {}\n\nQuestion: What does the speaker want?",
    "Context:\n{}\n\nQuestion: Who is mentioned in the context, and what do they do?\nAnswer:",
    "Read the passage and answer: what is it about, and what happens in it?\n\n{}",
    "{}\n\nWhy does this matter, according to the text?",
    "Translate the following text into French:\n\n{}",
    "Translate this passage into Spanish.\n\n{}",
    "Translate to German: {}",
    "Extract all names of people and places from this text as a list:\n\n{}",
    "{}\n\nList every date, number and place in the text above.",
    "Extract the most important sentences of this text, word for word:\n\n{}",
    "Rewrite the following text in simpler words:\n\n{}",
    "Correct the style of this text, and keep its meaning:\n\n{}",
    "Continue the following text:\n\n{}",
    "Write three questions about this text, with their answers.\n\n{}",
    "Give the following text a title and explain your choice:\n\n{}"};

uint64_t run_hash(TokenSpan run) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const Token token : run) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001B3U;
    hash ^= hash >> 29U;
  }
  return hash;
}

int64_t below(Randomness& random, int64_t count) {
  return random.draw(std::vector<double>(static_cast<size_t>(count), 1.0));
}

/// A number in [0, 1) in steps of a 2^20th.
double fraction(Randomness& random) {
  double value = 0.0;
  for (int bit = 1; bit <= 20; ++bit) {
    value += random.bernoulli(0.5) ? std::ldexp(1.0, -bit) : 0.0;
  }
  return value;
}

/// A text up to the last end of a sentence, if there is one in the second half.
std::string whole_sentences(const std::string& text) {
  const size_t end = text.find_last_of(".!?\n");
  return end == std::string::npos || end < text.size() / 2 ? text : text.substr(0, end + 1);
}

}  // namespace

ChatFrame chat_frame(const Tokenizer& tokenizer) {
  const auto one = encode_chat(tokenizer, {{"user", "7"}});
  const auto other = encode_chat(tokenizer, {{"user", "x"}});
  const auto begin = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  const auto end = std::mismatch(one.rbegin(), one.rend(), other.rbegin(), other.rend());
  SPECDEC_CHECK(begin.first < end.first.base(), "a chat template that does not write the turn");
  return {{one.begin(), begin.first}, {end.first.base(), one.end()}};
}

ChatFrame frame_of(const AnswerPlan& plan, const Tokenizer& tokenizer) {
  if (plan.chat) {
    return chat_frame(tokenizer);
  }
  const std::optional<Token> bos = tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
  return {bos ? std::vector<Token>{*bos} : std::vector<Token>(), {}};
}

void ExcludedRuns::add(TokenSpan text) {
  for (size_t i = 0; i + length_ <= text.size(); ++i) {
    hashes_.insert(run_hash(text.subspan(i, length_)));
  }
}

bool ExcludedRuns::found_in(TokenSpan text) const {
  for (size_t i = 0; i + length_ <= text.size(); ++i) {
    if (hashes_.count(run_hash(text.subspan(i, length_))) > 0) {
      return true;
    }
  }
  return false;
}

ExcludedRuns excluded_runs(const AnswerPlan& plan, const Tokenizer& tokenizer) {
  ExcludedRuns runs(plan.exclude_run);
  for (const auto& file : plan.exclude) {
    for (const Prompt& prompt : read_prompts(file)) {
      for (const std::string& turn : prompt.turns) {
        runs.add(tokenizer.encode(turn));
      }
    }
  }
  return runs;
}

AnswerPrompts::AnswerPrompts(const AnswerPlan& plan, const Tokenizer& tokenizer)
    : plan_(plan), tokenizer_(tokenizer) {
  for (const auto& file : plan.texts) {
    texts_.push_back(read_text_file(file));
    if (texts_.back().size() < kBytesPerToken * static_cast<size_t>(plan.text_tokens[1])) {
      throw Error(fmt::format("{}: too short for pieces of up to {} tokens (text_tokens).",
                              file.string(), plan.text_tokens[1]));
    }
  }
}

AnswerPrompt AnswerPrompts::make(int64_t number) const {
  CounterRandomness random(plan_.seed, static_cast<uint32_t>(number));
  random.seek(0, Purpose::kDraft);
  AnswerPrompt prompt{.number = number, .user = {}};
  prompt.own = random.bernoulli(plan_.own_prompts);
  prompt.temperature = random.bernoulli(0.5) ? 1.0 : 0.0;
  prompt.user = prompt.own ? opening(random) : instruction(random);
  return prompt;
}

std::vector<Token> AnswerPrompts::opening(Randomness& random) const {
  if (plan_.openings.empty()) {
    return {};
  }
  const int64_t chosen = below(random, std::ssize(plan_.openings));
  return tokenizer_.encode_after(TextStart::kContinued,
                                 plan_.openings[static_cast<size_t>(chosen)]);
}

std::vector<Token> AnswerPrompts::instruction(Randomness& random) const {
  if (!plan_.chat) {
    return tokenizer_.encode(piece(random));
  }
  std::string text = kInstructions[below(random, std::size(kInstructions))];
  text.replace(text.find("{}"), 2, piece(random));
  return tokenizer_.encode_after(TextStart::kContinued, text);
}

/// Begins at a line; its length is uniform on a logarithmic scale, so that long ones are rarer.
std::string AnswerPrompts::piece(Randomness& random) const {
  std::vector<double> sizes;
  for (const std::string& text : texts_) {
    sizes.push_back(static_cast<double>(text.size()));
  }
  const std::string& text = texts_[static_cast<size_t>(random.draw(sizes))];
  const auto fewest = static_cast<double>(plan_.text_tokens[0]);
  const double ratio = static_cast<double>(plan_.text_tokens[1]) / fewest;
  const auto tokens = static_cast<size_t>(fewest * std::pow(ratio, fraction(random)));
  const size_t bytes = kBytesPerToken * tokens;
  const auto last = static_cast<double>(text.size() - bytes);
  const size_t line = text.find('\n', static_cast<size_t>(fraction(random) * last));
  const size_t begin =
      line == std::string::npos ? text.size() - bytes : text.find_first_not_of(" \r\n", line);
  auto encoded = tokenizer_.encode_after(TextStart::kContinued,
                                         text.substr(std::min(begin, text.size() - bytes), bytes));
  encoded.resize(std::min(encoded.size(), tokens));
  return whole_sentences(tokenizer_.decode(encoded));
}

}  // namespace specdec
