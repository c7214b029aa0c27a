// The states of a JSON text's automaton, each kept once.
#include <algorithm>

#include "core/error.h"
#include "grammar/json/json_automaton.h"

namespace specdec {

bool JsonAutomaton::State::operator==(const State& other) const {
  return depth == other.depth && pad == other.pad && spaces == other.spaces && text == other.text &&
         text_depth == other.text_depth && std::ranges::equal(threads, other.threads);
}

size_t JsonAutomaton::Hash::operator()(const State& state) const {
  WordHash hash;
  hash.add(uint64_t{state.depth} << 32 | state.pad).add(uint64_t{state.spaces} << 32 | state.text);
  hash.add(state.text_depth);
  for (const Thread& thread : state.threads) {
    hash.add(static_cast<uint64_t>(thread.kind) << 32 | thread.a);
    hash.add(uint64_t{thread.b} << 32 | thread.stack);
  }
  return hash.value();
}

size_t JsonAutomaton::Hash::operator()(const StringState& state) const {
  WordHash hash;
  return hash.add(state.language).add(state.min).add(state.max).add(state.decoder.key()).value();
}

size_t JsonAutomaton::Hash::operator()(const KeyState& state) const {
  WordHash hash;
  hash.add(uint64_t{state.object} << 32 | state.text).add(state.decoder.key());
  hash.add(uint64_t{state.first} << 32 | state.last).add(state.length);
  return hash.add_all(state.classes).value();
}

size_t JsonAutomaton::Hash::operator()(const std::vector<Entry>& entries) const {
  WordHash hash;
  for (const Entry& entry : entries) {
    hash.add(static_cast<uint64_t>(entry.kind) << 32 | entry.state);
    hash.add(uint64_t{entry.stack} << 32 | entry.text_start);
  }
  return hash.value();
}

size_t JsonAutomaton::Hash::operator()(const std::vector<Choice>& choices) const {
  WordHash hash;
  for (const Choice& choice : choices) {
    hash.add(uint64_t{choice.goal} << 32 | choice.next);
  }
  return hash.value();
}

JsonAutomaton::JsonAutomaton(FormulaStore& formulas, JsonPlans& plans, NumberAutomata& numbers,
                             FormulaId root, JsonAutomatonOptions options)
    : formulas_(formulas),
      plans_(plans),
      number_automata_(numbers),
      root_(root),
      options_(options) {
  states_.add({});  // kDead
  stacks_.add({});
  intern_stack({{}});
}

JsonAutomaton::~JsonAutomaton() = default;

StateId JsonAutomaton::intern(State state, std::vector<Thread> threads) {
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  if (threads.empty()) {
    return kDead;
  }
  state.threads = threads;
  if (const StateId found = states_.find(state); found != states_.kNone) {
    return found;
  }
  if (states_.size() > options_.max_states) {
    throw GrammarError(fmt::format(
        "the texts of the grammar need more than {} states; raise max_states, or restrict the "
        "objects whose property names are free",
        options_.max_states));
  }
  state.threads = store(threads);
  return states_.add(state);
}

std::span<const JsonAutomaton::Thread> JsonAutomaton::store(std::span<const Thread> threads) {
  constexpr size_t kPiece = 256;
  if (free_threads_.size() < threads.size()) {
    const size_t size = std::max(kPiece, threads.size());
    threads_.push_back(std::make_unique<Thread[]>(size));
    free_threads_ = {threads_.back().get(), size};
  }
  std::copy(threads.begin(), threads.end(), free_threads_.begin());
  const std::span<Thread> stored = free_threads_.first(threads.size());
  free_threads_ = free_threads_.subspan(threads.size());
  return stored;
}

uint32_t JsonAutomaton::intern_stack(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end());
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  return stacks_.intern(std::move(entries));
}

}  // namespace specdec
