#include "grammar/tags/tag_automaton.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "grammar/json/open_string.h"
#include "grammar/tables/sequence_table.h"
#include "grammar/tags/tag_completion.h"
#include "grammar/tags/tag_explain.h"
#include "grammar/tags/tag_threads.h"

namespace specdec {
namespace {

class TagAutomaton final : public Automaton, public StringStates {
 public:
  explicit TagAutomaton(TagProgram program) : program_(std::move(program)) {
    states_.intern({});  // kDead
    row_of_.push_back(kNoRow);
    TagThreads threads(program_);
    threads.add_entry(program_.begin());
    start_ = intern(threads.take());
  }

  StateId start() override { return start_; }

  StateId next(StateId state, uint8_t byte) override {
    if (row_of_[state] == kNoRow) {
      return step(state, byte);
    }
    const uint32_t row = row_of_[state];
    if (rows_[row][byte] == kUnknown) {
      const StateId target = step(state, byte);
      rows_[row][byte] = target;
    }
    return rows_[row][byte];
  }

  bool is_complete(StateId state) override {
    const auto words = states_[state];
    for (size_t i = 0; i < words.size(); i += kWords) {
      if (words[i] == TagThread::kEnd ||
          (words[i] == TagThread::kFree && may_end(program_, thread(words, i)))) {
        return true;
      }
    }
    return false;
  }

  void begin_call() override {
    for (const auto& automaton : program_.automata()) {
      automaton->begin_call();
    }
  }

  double used() const override {
    double most = 0.0;
    for (const auto& automaton : program_.automata()) {
      most = std::max(most, automaton->used());
    }
    return most;
  }

  Bytes candidates(StateId state) override {
    Bytes bytes;
    if (row_of_[state] != kNoRow) {  // asked for at every node of the vocabulary's tree
      return bytes.set();
    }
    for (const TagThread& thread : threads(state)) {
      bytes |= candidates_of(thread);
    }
    return bytes;
  }

  StringStates* string_states() override { return this; }

  /// Inside the string of a grammar, while nothing else may come.
  bool describe(StateId state, OpenString& string) override {
    const auto words = states_[state];
    if (words.size() != kWords || words[0] != TagThread::kGrammar) {
      return false;
    }
    const TagThread at = thread(words, 0);
    StringStates* inner = program_.automaton(at.id).string_states();
    if (inner == nullptr || !inner->describe(at.at, string)) {
      return false;
    }
    for (OpenString::Part& part : string.parts) {
      part.closed = part.closed == kDead ? kDead : at_grammar(at.id, part.closed);
    }
    return true;
  }

  bool find_alike(StateId state, AlikePlace& place) override {
    const auto words = states_[state];
    if (words.size() != kWords || words[0] != TagThread::kGrammar) {
      return false;
    }
    const TagThread at = thread(words, 0);
    StringStates* inner = program_.automaton(at.id).string_states();
    return inner != nullptr && inner->find_alike(at.at, place);
  }

  bool depends_on_string(StateId state) override {
    const std::vector<TagThread> all = threads(state);
    return std::ranges::any_of(all, [&](const TagThread& thread) {
      StringStates* inner = thread.kind == TagThread::kGrammar
                                ? program_.automaton(thread.id).string_states()
                                : nullptr;
      return inner != nullptr && inner->depends_on_string(thread.at);
    });
  }

  std::vector<Token> named_tokens() const override { return program_.named_tokens(); }

  std::vector<Token> tokens(StateId state) override {
    std::vector<Token> tokens;
    if (program_.named_tokens().empty()) {
      return tokens;
    }
    for (const TagThread& thread : threads(state)) {
      const std::vector<Token> more = tokens_of(thread);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  }

  StateId next_token(StateId state, Token token) override { return step(state, symbol_of(token)); }

  StateId end_token(StateId state) override {
    return in_grammars(state, [](Automaton& inner, StateId at) { return inner.end_token(at); });
  }

  StateId mask_state(StateId state) override {
    return in_grammars(state, [](Automaton& inner, StateId at) { return inner.mask_state(at); });
  }

  std::optional<std::string> completion(StateId state) override {
    const TagCompletion way = find_completion(program_, threads(state));
    return way.bytes.empty() && !is_complete(state) ? std::nullopt : std::optional(way.bytes);
  }

  std::optional<Token> completion_token(StateId state) override {
    const TagCompletion way = find_completion(program_, threads(state));
    return way.bytes.empty() ? way.token : std::nullopt;
  }

  std::string explain(StateId state) override {
    return state == kDead ? "nothing: no text goes on like this\n"
                          : explain_tags(program_, threads(state));
  }

 private:
  static constexpr size_t kWords = 4;
  static constexpr StateId kUnknown = ~StateId{0};
  static constexpr uint32_t kNoRow = ~0U;

  static TagThread thread(std::span<const uint32_t> words, size_t i) {
    return {words[i], words[i + 1], words[i + 2], words[i + 3]};
  }
  std::vector<TagThread> threads(StateId state) const {
    const auto words = states_[state];
    std::vector<TagThread> threads;
    for (size_t i = 0; i < words.size(); i += kWords) {
      threads.push_back(thread(words, i));
    }
    return threads;
  }

  StateId intern(const std::vector<TagThread>& threads) {
    std::vector<uint32_t> words;
    for (const TagThread& thread : threads) {
      words.insert(words.end(), {thread.kind, thread.id, thread.at, thread.more});
    }
    const StateId state = states_.intern(words);
    if (state == row_of_.size()) {
      const bool is_free = threads.size() == 1 && threads.front().kind == TagThread::kFree;
      row_of_.push_back(is_free ? static_cast<uint32_t>(rows_.size()) : kNoRow);
      if (is_free) {
        rows_.emplace_back().fill(kUnknown);
      }
    }
    return state;
  }

  StateId step(StateId state, uint32_t symbol) {
    if (state == kDead) {
      return kDead;
    }
    TagThreads next(program_);
    next.step(threads(state), symbol);
    return intern(next.take());
  }

  StateId at_grammar(uint32_t grammar, StateId inner) {
    TagThreads threads(program_);
    threads.add_grammar(grammar, inner);
    return intern(threads.take());
  }

  /// The state with other states of the grammars in it.
  template <class Change>
  StateId in_grammars(StateId state, const Change& change) {
    std::vector<TagThread> all = threads(state);
    bool is_same = true;
    for (TagThread& thread : all) {
      if (thread.kind == TagThread::kGrammar) {
        const StateId at = change(program_.automaton(thread.id), thread.at);
        is_same = is_same && at == thread.at;
        thread.at = at;
      }
    }
    if (is_same) {
      return state;
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return intern(all);
  }

  Bytes candidates_of(const TagThread& thread) {
    switch (thread.kind) {
      case TagThread::kText:
        return children(program_.start(thread.id).texts, thread.at);
      case TagThread::kFree: {
        const TagSearch& search = program_.free(thread.id).search;
        return search.is_committed(thread.at) ? children(search.texts(), thread.at) : Bytes().set();
      }
      case TagThread::kGrammar: {
        Automaton& automaton = program_.automaton(thread.id);
        const bool any = program_.grammar(thread.id).greedy && automaton.is_complete(thread.at);
        return any ? Bytes().set() : automaton.candidates(thread.at);
      }
      default:
        return {};
    }
  }

  static Bytes children(const TagTexts& texts, TagTexts::Node node) {
    Bytes bytes;
    for (const uint32_t symbol : texts.child_symbols(node)) {
      if (!is_token(symbol)) {
        bytes.set(symbol);
      }
    }
    return bytes;
  }

  std::vector<Token> tokens_of(const TagThread& thread) {
    switch (thread.kind) {
      case TagThread::kText:
        return child_tokens(program_.start(thread.id).texts, thread.at);
      case TagThread::kFree:
        return unpack_character(thread.more).idle()
                   ? program_.free(thread.id).search.tokens(thread.at)
                   : std::vector<Token>();
      case TagThread::kGrammar:
        return tokens_of_grammar(thread);
      default:
        return {};
    }
  }

  static std::vector<Token> child_tokens(const TagTexts& texts, TagTexts::Node node) {
    std::vector<Token> tokens;
    for (const uint32_t symbol : texts.child_symbols(node)) {
      if (is_token(symbol)) {
        tokens.push_back(token_of(symbol));
      }
    }
    return tokens;
  }

  std::vector<Token> tokens_of_grammar(const TagThread& thread) {
    Automaton& automaton = program_.automaton(thread.id);
    std::vector<Token> tokens = automaton.tokens(thread.at);
    const TagProgram::Grammar& grammar = program_.grammar(thread.id);
    if (grammar.greedy && automaton.is_complete(thread.at)) {
      for (const uint32_t free : program_.start(grammar.then).free) {
        const std::vector<Token> more = program_.free(free).search.tokens(0);
        tokens.insert(tokens.end(), more.begin(), more.end());
      }
    }
    return tokens;
  }

  TagProgram program_;
  SequenceTable states_;                        ///< four words a thread
  std::vector<uint32_t> row_of_;                ///< by state: of free text, which row
  std::vector<std::array<StateId, 256>> rows_;  ///< transitions of free text
  StateId start_ = kDead;
};

}  // namespace

std::unique_ptr<Automaton> make_tag_automaton(TagProgram program) {
  return std::make_unique<TagAutomaton>(std::move(program));
}

}  // namespace specdec
