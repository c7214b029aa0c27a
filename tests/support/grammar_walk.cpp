#include "tests/support/grammar_walk.h"

#include <algorithm>
#include <array>
#include <set>

namespace specdec {
namespace {

constexpr size_t kTries = 8;
constexpr size_t kSteps = 300;
constexpr size_t kExpansions = 200;

}  // namespace

GrammarWalk::GrammarWalk(const CompiledGrammar& grammar, std::string_view schema, uint32_t seed)
    : grammar_(grammar), random_(seed) {
  const std::string own = ",[{}]:\"0123456789.-eabxtrulns\\ \n";
  std::set<char> distinct(own.begin(), own.end());
  std::set<std::string> words;
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i] == '"') {
      const size_t start = i + 1;
      for (++i; schema[i] != '"'; ++i) {
        i += schema[i] == '\\' ? 1 : 0;
      }
      words.emplace(schema.substr(start, i + 1 - start));
      distinct.insert(schema.begin() + static_cast<int64_t>(start),
                      schema.begin() + static_cast<int64_t>(i));
    }
  }
  words_.assign(words.begin(), words.end());
  letters_.assign(distinct.begin(), distinct.end());
  for (int byte = 0; byte < 256; ++byte) {
    all_bytes_ += static_cast<char>(byte);
  }
}

std::optional<GrammarWalk::Move> GrammarWalk::first_alive(StateId state,
                                                          std::string_view bytes) const {
  for (const char& byte : bytes) {
    const StateId next = grammar_.next(state, std::string_view(&byte, 1));
    if (next != Automaton::kDead) {
      return Move{next, std::string(1, byte)};
    }
  }
  return std::nullopt;
}

std::optional<GrammarWalk::Move> GrammarWalk::any_word(StateId state) {
  for (int tries = 0; tries < 12 && !words_.empty(); ++tries) {
    const std::string& word = words_[random_() % words_.size()];
    const StateId next = grammar_.next(state, word);
    if (next != Automaton::kDead) {
      return Move{next, word};
    }
  }
  return std::nullopt;
}

std::optional<GrammarWalk::Move> GrammarWalk::any_move(StateId state) {
  std::string& bytes = random_() % 4 == 0 ? all_bytes_ : letters_;
  std::shuffle(bytes.begin(), bytes.end(), random_);
  if (const auto move = first_alive(state, bytes); move && random_() % 5 != 0) {
    return move;
  }
  return closing_move(state);
}

/// What ends values comes first, a comma late, white space last.
std::optional<GrammarWalk::Move> GrammarWalk::closing_move(StateId state) {
  if (const auto word = random_() % 2 == 0 ? any_word(state) : std::nullopt) {
    return word;
  }
  static constexpr std::array<std::string_view, 2> kEnds = {"}]\":", "\":}]"};
  static constexpr std::array<std::string_view, 2> kBetween = {"\n,", ",\n"};
  for (const std::string_view bytes : {kEnds[random_() % 2], kBetween[random_() % 2]}) {
    if (const auto move = first_alive(state, bytes); move && random_() % 20 != 0) {
      return move;
    }
  }
  std::shuffle(letters_.begin(), letters_.end(), random_);
  std::stable_partition(letters_.begin(), letters_.end(), [](char c) {
    return std::string_view(" \n\\[{").find(c) == std::string::npos;
  });
  if (const auto move = first_alive(state, letters_); move && random_() % 8 != 0) {
    return move;
  }
  std::shuffle(all_bytes_.begin(), all_bytes_.end(), random_);
  return first_alive(state, all_bytes_);
}

std::optional<std::string> GrammarWalk::completion(StateId from) {
  lost_ = false;
  for (size_t tries = 0; tries < kTries; ++tries) {
    std::string text;
    StateId state = from;
    while (text.size() < kSteps && !grammar_.is_complete(state)) {
      const auto move = closing_move(state);
      if (!move) {
        begun_ += text;
        return std::nullopt;
      }
      text += move->bytes;
      state = move->next;
    }
    if (grammar_.is_complete(state)) {
      return text;
    }
  }
  return search(from);
}

std::optional<std::string> GrammarWalk::search(StateId from) {
  struct Found {
    StateId state = 0;
    size_t before = 0;
    char byte = 0;
  };
  std::vector<Found> found = {{from, 0, 0}};
  std::set<StateId> seen = {from};
  for (size_t i = 0; i < found.size() && i < kExpansions; ++i) {
    if (grammar_.is_complete(found[i].state)) {
      std::string text;
      for (size_t at = i; at != 0; at = found[at].before) {
        text += found[at].byte;
      }
      std::reverse(text.begin(), text.end());
      return text;
    }
    for (const char& byte : all_bytes_) {
      const StateId next = grammar_.next(found[i].state, std::string_view(&byte, 1));
      if (next != Automaton::kDead && seen.insert(next).second) {
        found.push_back({next, i, byte});
      }
    }
  }
  lost_ = found.size() >= kExpansions;
  return std::nullopt;
}

std::optional<std::string> GrammarWalk::text(size_t wild) {
  begun_.clear();
  StateId state = grammar_.start();
  while (begun_.size() < wild) {
    const auto move = any_move(state);
    if (!move) {
      break;  // complete, or a dead end
    }
    begun_ += move->bytes;
    state = move->next;
  }
  const auto rest = completion(state);
  return rest ? std::optional(begun_ + *rest) : std::nullopt;
}

}  // namespace specdec
