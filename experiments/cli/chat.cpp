#include "experiments/cli/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"
#include "core/tokenizers/control_pieces.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

/// Turns the tokens of an answer into text, thinking apart, as they come.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, const StopRule& stop, TokenSpan prompt,
             const ChatWriter& write)
      : stop_(stop), write_(write), marks_(thinking_tokens(tokenizer)), decoder_(tokenizer) {
    thinks_ = marks_ && opens_thinking(prompt);
  }

  /// Takes the tokens of `all` that it does not have yet.
  void take(TokenSpan all) {
    while (answer_.tokens.size() < all.size()) {
      push(all[answer_.tokens.size()]);
    }
  }
  void push(Token token) {
    answer_.tokens.push_back(token);
    if (marks_ && (token == marks_->begin || token == marks_->end)) {
      add(decoder_.finish());
      thinks_ = token == marks_->begin;
    } else if (!stop_.reason(token)) {
      add(decoder_.push(token));
    }
  }
  size_t size() const { return answer_.tokens.size(); }
  ChatAnswer finish() && {
    add(decoder_.finish());
    return std::move(answer_);
  }

 private:
  /// Templates may open the thinking.
  bool opens_thinking(TokenSpan prompt) const {
    const std::array<Token, 2> marks = {marks_->begin, marks_->end};
    const auto last =
        std::find_first_of(prompt.rbegin(), prompt.rend(), marks.begin(), marks.end());
    return last != prompt.rend() && *last == marks_->begin;
  }
  void add(std::string text) {
    std::string& whole = thinks_ ? answer_.thinking : answer_.text;
    if (whole.empty() && (thinks_ || !answer_.thinking.empty())) {
      text.erase(0, text.find_first_not_of('\n'));  // that set the two apart
    }
    if (!text.empty()) {
      whole += text;
      write_(text, thinks_);
    }
  }

  const StopRule& stop_;
  const ChatWriter& write_;
  std::optional<ThinkingTokens> marks_;
  StreamingDecoder decoder_;
  bool thinks_ = false;
  ChatAnswer answer_;
};

bool has_system(const std::vector<ChatTurn>& turns) {
  return !turns.empty() && turns.front().role == "system";
}

std::vector<Token> encode_turns(const ModelFiles& files, const GrammarConfig* grammar,
                                const std::vector<ChatTurn>& turns) {
  return encode_prompt(*files.tokenizer, turns, true, files.config.bos_id,
                       grammar == nullptr ? "" : grammar->tools);
}

}  // namespace

void check_chat(const ModelFiles& files, const GrammarConfig* grammar,
                std::vector<ChatTurn> turns) {
  if (files.tokenizer == nullptr) {
    throw ConfigError(files.no_text(
        fmt::format("{} has no tokenizer (tokenizer.model or tokenizer.json), and a chat is text",
                    files.folder.string())));
  }
  const bool with_system = has_system(turns);
  turns.push_back({"user", "?"});
  try {
    (void)encode_turns(files, grammar, turns);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("this model cannot chat{}: {}",
                                  with_system ? " with a system prompt" : "", error.what()));
  }
}

Chat::Chat(const ChatParts& parts, const std::string& system) : parts_(parts) {
  set_system(system);
}

int64_t Chat::answers() const {
  return std::count_if(turns_.begin(), turns_.end(),
                       [](const ChatTurn& turn) { return turn.role == "model"; });
}

void Chat::set_system(const std::string& text) {
  std::vector<ChatTurn> turns = turns_;
  if (has_system(turns)) {
    turns.erase(turns.begin());
  }
  if (!text.empty()) {
    turns.insert(turns.begin(), {"system", text});
  }
  check_chat(parts_.files, parts_.grammar, turns);
  turns_ = std::move(turns);
}

void Chat::reset() {
  turns_.resize(has_system(turns_) ? 1 : 0);
  tries_ = 0;
}

bool Chat::undo() {
  const size_t first = has_system(turns_) ? 1 : 0;
  if (turns_.size() < first + 2) {
    return false;
  }
  turns_.resize(turns_.size() - 2);
  tries_ = 0;
  return true;
}

ChatAnswer Chat::answer(const std::string& text, const ChatWriter& write) {
  tries_ = 0;
  const std::vector<ChatTurn> before = turns_;
  turns_.push_back({"user", text});
  try {
    return generate(write);
  } catch (...) {
    turns_ = before;
    throw;
  }
}

ChatAnswer Chat::retry(const ChatWriter& write) {
  const std::vector<ChatTurn> before = turns_;
  const uint32_t tries = tries_ + 1;
  if (!undo()) {
    throw Error("there is no answer yet");
  }
  tries_ = tries;
  turns_.push_back(before[before.size() - 2]);
  try {
    return generate(write);
  } catch (...) {
    turns_ = before;
    throw;
  }
}

ChatAnswer Chat::generate(const ChatWriter& write) {
  const Tokenizer& tokenizer = *parts_.files.tokenizer;
  const std::vector<Token> prompt = encode_turns(parts_.files, parts_.grammar, turns_);
  if (std::ssize(prompt) >= parts_.target.max_length()) {
    throw Error(fmt::format(
        "the chat has {} tokens, and the model takes {} with the answer: take turns back (/undo, "
        "/reset)",
        prompt.size(), parts_.target.max_length()));
  }
  Constraint constraint = parts_.constraint;
  if (parts_.grammar != nullptr) {
    constraint.grammar = grammars_.get(*parts_.grammar, {}, tokenizer, parts_.stop.end_ids).grammar;
  }
  CounterRandomness random(parts_.seed, static_cast<uint32_t>(answers()), tries_);
  AnswerText text(tokenizer, parts_.stop, prompt, write);
  const Request request{.prompt = prompt,
                        .sampling = parts_.sampling,
                        .stop = parts_.stop,
                        .random = random,
                        .tokenizer = &tokenizer,
                        .on_tokens =
                            [&](TokenSpan tokens) {
                              for (const Token token : tokens) {
                                text.push(token);
                              }
                              InterruptGuard::check();
                            },
                        .constraint = constraint};
  const std::optional<LayerReads> reads = parts_.reads ? parts_.reads() : std::nullopt;
  std::optional<RequestMetrics> metrics;
  try {
    const Generation generation = parts_.strategy.generate(request);
    text.take(generation.tokens);  // of strategies that know their tokens at the end only
    metrics = request_metrics(generation, std::ssize(prompt), parts_.target.reused());
    if (reads) {
      metrics->disk = *parts_.reads() - *reads;
    }
  } catch (const Interrupted&) {
    if (text.size() == 0) {
      turns_.pop_back();  // nothing was answered
      return {};
    }
  }
  ChatAnswer answer = std::move(text).finish();
  answer.metrics = metrics;
  turns_.push_back({"model", answer.text});
  return answer;
}

}  // namespace specdec
