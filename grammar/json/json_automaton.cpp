#include "grammar/json/json_automaton.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "grammar/json/json_completion.h"
#include "grammar/json/json_excluded_values.h"
#include "grammar/json/json_explain.h"
#include "grammar/json/json_partial_item.h"

namespace specdec {
namespace {

using Ranges = std::vector<CodePoints::Range>;

bool is_in(const Ranges& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CodePoints::Range& range) {
    return range.first <= c && c <= range.last;
  });
}

}  // namespace

// ---- States, each kept once ---------------------------------------------------------------------

bool JsonAutomaton::State::operator==(const State& other) const {
  return depth == other.depth && pad == other.pad && spaces == other.spaces && text == other.text &&
         text_depth == other.text_depth && guessed == other.guessed &&
         guessed_depth == other.guessed_depth && std::ranges::equal(threads, other.threads);
}

size_t JsonAutomaton::Hash::operator()(const State& state) const {
  WordHash hash;
  hash.add(uint64_t{state.depth} << 32 | state.pad).add(uint64_t{state.spaces} << 32 | state.text);
  hash.add(uint64_t{state.text_depth} << 32 | state.guessed).add(state.guessed_depth);
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
      options_(options),
      key_texts_(plans.objects().name_texts()),
      excluded_values_(std::make_shared<ExcludedValues>(*this)) {
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

// ---- What is alive -----------------------------------------------------------------------------

bool JsonAutomaton::alive(const StringState& state) {
  RegexStore& regexes = formulas_.regexes();
  if (state.decoder.idle()) {
    return true;  // the language and the length have been looked at with the last character
  }
  return state.max > 0 && regexes.goes_on(state.language, state.decoder.reach(options_.escapes));
}

std::optional<std::u32string> JsonAutomaton::fresh_word(const KeyState& state, RegexId language) {
  const ObjectPlan& plan = plans_.objects().plan(state.object);
  const std::vector<uint32_t>& seen = plans_.objects()[state.object].seen_others;
  for (std::u32string& word :
       formulas_.regexes().list(language, state.last - state.first + seen.size() + 1)) {
    const bool known =
        std::any_of(plan.names.begin() + state.first, plan.names.begin() + state.last,
                    [&](const PropertyPlan& property) {
                      const std::u32string& name = formulas_.name_points(property.name);
                      return std::u32string_view(name).substr(state.length) == word;
                    });
    uint32_t text = state.text;
    for (const char32_t c : seen.empty() ? std::u32string() : word) {
      text = key_texts_.add(text, c);
    }
    if (!known && !std::binary_search(seen.begin(), seen.end(), text)) {
      return std::move(word);
    }
  }
  return std::nullopt;
}

bool JsonAutomaton::alive(const KeyState& state) {
  RegexStore& regexes = formulas_.regexes();
  const ObjectChoices& choices = plans_.objects().choices(state.object);
  const ObjectPlan& plan = plans_.objects().plan(state.object);
  const bool idle = state.decoder.idle();
  const Ranges reach = idle ? Ranges() : state.decoder.reach(options_.escapes);
  for (uint32_t i = state.first; i < state.last; ++i) {
    const std::u32string& name = formulas_.name_points(plan.names[i].name);
    const bool fits = idle || (name.size() > state.length && is_in(reach, name[state.length]));
    if (choices.names[i] && fits) {
      return true;
    }
  }
  for (const RegexId language : state.classes) {
    if (language != RegexStore::kNothing && (idle || regexes.goes_on(language, reach)) &&
        (!regexes.is_finite(language) || fresh_word(state, language))) {
      return true;
    }
  }
  return false;
}

std::string JsonAutomaton::recorded(uint32_t text) const {
  std::string bytes;
  for (; text != GrowingTrie::kRoot; text = texts_.parent(text)) {
    bytes += static_cast<char>(texts_.symbol(text));
  }
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

NumberAutomaton& JsonAutomaton::numbers(uint32_t plan) {
  if (numbers_.size() <= plan) {
    numbers_.resize(plan + 1);
  }
  if (numbers_[plan] == nullptr) {
    numbers_[plan] = number_automata_.find(plans_.number(plan), options_.numbers);
  }
  return *numbers_[plan];
}

StateId JsonAutomaton::start() {
  if (!plans_.possible(root_)) {
    return kDead;
  }
  return intern({}, {{Kind::kValue, root_, 0, 1}});
}

bool JsonAutomaton::is_complete(StateId state) {
  const State& here = states_[state];
  return std::any_of(here.threads.begin(), here.threads.end(), [&](const Thread& thread) {
    if (thread.kind != Kind::kNumber) {
      return thread.kind == Kind::kDone;
    }
    const std::vector<Entry>& entries = stacks_[thread.stack];
    return std::any_of(entries.begin(), entries.end(),
                       [](const Entry& entry) { return entry.kind == Entry::Kind::kEnd; }) &&
           numbers(thread.a).is_complete(thread.b);
  });
}

// ---- Completions
// ----------------------------------------------------------------------------------

std::optional<std::string> JsonAutomaton::completion(StateId id) {
  if (is_complete(id)) {
    return "";
  }
  if (std::string rest = character_rest(id); !rest.empty()) {
    return rest;
  }
  if (completion_ == nullptr || completion_->is_full()) {
    completion_ = std::make_shared<Completion>(*this);
  }
  std::optional<Completion::Rest> best;
  const State state = states_[id];
  const std::vector<Thread> threads(state.threads.begin(), state.threads.end());
  for (const Thread& thread : threads) {
    if (item_is_open(state, thread)) {
      const auto rest = PartialItem(*this, state).completion(thread);
      if (rest && !rest->empty()) {
        return with_padding(id, *rest);
      }
    }
    const auto rest = completion_->rest(thread);
    best = !best || (rest && rest->size() < best->size()) ? rest : best;
  }
  if (!best || best->size() == 0) {
    return std::nullopt;
  }
  return with_padding(id, best->inner.empty() ? best->outer.substr(0, 1) : best->inner);
}

/// Bytes that finish the character or escape that a string is in the middle of.
std::string JsonAutomaton::character_rest(StateId id) {
  const auto idle = [&](StateId at) {
    const Thread& thread = states_[at].threads.front();
    return thread.kind == Kind::kString
               ? strings_[thread.a].decoder.idle()
               : thread.kind != Kind::kKey || keys_[thread.a].decoder.idle();
  };
  std::string rest;
  while (!idle(id)) {
    uint8_t byte = 0;
    while (next(id, byte) == kDead) {
      SPECDEC_CHECK(byte < 0xFF, "a place in a JSON text without a way on");
      ++byte;
    }
    rest += static_cast<char>(byte);
    id = next(id, byte);
  }
  return rest;
}

/// The text with the white space that has to stand in it.
std::string JsonAutomaton::with_padding(StateId id, std::string_view text) {
  std::string result;
  for (const char byte : text) {
    StateId after = next(id, static_cast<uint8_t>(byte));
    while (after == kDead) {
      const bool newline = next(id, '\n') != kDead;
      id = next(id, newline ? '\n' : ' ');
      SPECDEC_CHECK(id != kDead, "'{}' does not go on with '{}'", text, byte);
      result += newline ? '\n' : ' ';
      after = next(id, static_cast<uint8_t>(byte));
    }
    result += byte;
    id = after;
  }
  return result;
}

// ---- In words -----------------------------------------------------------------------------------

std::string JsonAutomaton::explain(StateId state) {
  if (state == kDead) {
    return "nothing: no text of the grammar begins so\n";
  }
  const std::span<const Thread> threads = states_[state].threads;
  std::vector<std::string> lines;
  for (const Thread& thread : threads) {
    std::string line = Explain(*this, state).thread(thread);
    if (!line.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(std::move(line));
    }
  }
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace specdec
