#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/layer_reads.h"
#include "core/prefix_cached_model.h"
#include "experiments/metrics/request_metrics.h"
#include "experiments/run/experiment_config.h"
#include "experiments/run/prompt_grammars.h"

namespace specdec {

/// What the answers of a chat are made with; borrowed, and outlives the chat.
struct ChatParts {
  const ModelFiles& files;    ///< with a tokenizer
  PrefixCachedModel& target;  ///< which the strategy decodes with
  DecodingStrategy& strategy;
  SamplingParams sampling = {};
  StopRule stop = {};
  uint64_t seed = 0;
  Constraint constraint = {};              ///< Constraint::grammar is set for each answer
  const GrammarConfig* grammar = nullptr;  ///< that every answer obeys
  /// What forwards read from disk so far, of a target that does not lie in memory.
  std::function<std::optional<LayerReads>()> reads = {};
};

/// An answer, and what it took.
struct ChatAnswer {
  std::string text;      ///< without its thinking
  std::string thinking;  ///< "" where the model did not think
  std::vector<Token> tokens;
  /// Metrics of the answer when it is whole; none where Ctrl-C stopped it.
  std::optional<RequestMetrics> metrics;
};

/// Receives an answer's text as it comes.
using ChatWriter = std::function<void(std::string_view text, bool is_thinking)>;

/// Throws ConfigError where the model has no tokenizer or its template refuses a turn of the user
/// after these; `grammar` (nullptr = none) may have tools.
void check_chat(const ModelFiles& files, const GrammarConfig* grammar, std::vector<ChatTurn> turns);

/// A chat in the checkpoint's format. What the newest prompt begins with that the cache holds is
/// not evaluated again: as a rule all but the new turn. Answers are those of a run with these turns
/// (`specdec run`): turn i draws with the seed's randomness of prompt i, each further try with that
/// of the next repeat. Thinking is left out of the turns that a template is given.
class Chat {
 public:
  /// `system`: the system prompt, "" = none. Throws as check_chat does.
  Chat(const ChatParts& parts, const std::string& system);

  /// Answers a turn of the user. Ctrl-C stops the answer (needs an InterruptGuard), whose beginning
  /// becomes the model's turn. Throws Error, and leaves the chat as it was: too long a chat, a turn
  /// that the template refuses.
  ChatAnswer answer(const std::string& text, const ChatWriter& write);
  /// Answers the newest turn again, with other random choices. Throws Error where there is none.
  ChatAnswer retry(const ChatWriter& write);
  /// Takes the newest turn and its answer back; false where there is none.
  bool undo();
  /// Takes all turns back; the system prompt stays.
  void reset();
  /// Replaces the system prompt ("" = none), from the next answer on. Throws as
  /// check_chat does, and leaves the chat as it was.
  void set_system(const std::string& text);

  /// Turns so far, the system prompt first.
  const std::vector<ChatTurn>& turns() const { return turns_; }
  /// Answers so far.
  int64_t answers() const;

 private:
  ChatAnswer generate(const ChatWriter& write);

  ChatParts parts_;
  PromptGrammars grammars_;
  std::vector<ChatTurn> turns_;
  uint32_t tries_ = 0;  // of the newest turn, before the next one
};

}  // namespace specdec
