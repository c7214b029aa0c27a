#include "grammar/numbers/number_automaton.h"

#include <functional>

#include "core/ascii.h"
#include "core/error.h"

namespace specdec {
namespace {

constexpr uint32_t kMaxStates = 2'000;  ///< a larger automaton is left to its grammars

/// Equal for equal plans, else different.
std::string key_of(const NumberPlan& plan, NumberStyle style) {
  std::string key = style == NumberStyle::kAny ? "any" : "plain";
  const auto add = [&](std::string_view what, const Decimal& value) {
    key += fmt::format(" {} {}e{}", what, value.digits.get_str(), value.exponent);
  };
  if (plan.lower) {
    add(plan.lower_open ? ">" : ">=", *plan.lower);
  }
  if (plan.upper) {
    add(plan.upper_open ? "<" : "<=", *plan.upper);
  }
  key += fmt::format(" {}", static_cast<int>(plan.written));
  for (const Decimal& unit : plan.multiples) {
    add("*", unit);
  }
  for (const Decimal& unit : plan.not_multiples) {
    add("/", unit);
  }
  for (const Decimal& value : plan.members.value_or(std::vector<Decimal>())) {
    add("=", value);
  }
  for (const Decimal& value : plan.excluded) {
    add("!", value);
  }
  return key;
}

}  // namespace

uint64_t NumberAutomaton::Hash::operator()(const State& state) const {
  return std::hash<std::string>()(state.text);
}

NumberAutomaton::NumberAutomaton(const NumberPlan& plan, NumberStyle style) : texts_(plan, style) {
  states_.add({Phase::kStart, false, "dead"});
  states_.add({});
  count();
}

void NumberAutomaton::count() {
  size_.store(states_.size(), std::memory_order_relaxed);
  bytes_.store(sizeof *this + states_.bytes() + transitions_.bytes() + text_bytes_,
               std::memory_order_relaxed);
}

/// It stays at its address.
const NumberAutomaton::State& NumberAutomaton::state(StateId state) const {
  const std::lock_guard lock(mutex_);
  return states_[state];
}

std::optional<NumberAutomaton::StateId> NumberAutomaton::next(StateId state, uint8_t byte) {
  const uint64_t key = uint64_t{state} << 8 | byte;
  const State* from = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const StateId found = transitions_.find(key); found != FlatMap::kNone) {
      return found;
    }
    from = &states_[state];
  }
  const auto phase = after(from->phase, byte);
  if (!phase) {
    return std::nullopt;
  }
  std::string text = texts_.representative(from->text + static_cast<char>(byte));
  const bool alive = texts_.can_complete(text);
  const bool complete = alive && texts_.is_complete(text);
  const std::lock_guard lock(mutex_);
  if (const StateId found = transitions_.find(key); found != FlatMap::kNone) {
    return found;  // by another thread, in the meantime
  }
  StateId next = kDead;
  if (alive) {
    const uint32_t known = states_.size();
    const size_t bytes = text.capacity();
    next = states_.intern({*phase, complete, std::move(text)});
    text_bytes_ += next == known ? bytes : 0;
  }
  transitions_.add(key, next);
  count();
  return next;
}

std::optional<NumberAutomaton::Phase> NumberAutomaton::after(Phase phase, uint8_t byte) {
  const bool whole = phase == Phase::kZero || phase == Phase::kDigits;
  if (is_digit(byte)) {
    switch (phase) {
      case Phase::kStart:
      case Phase::kMinus:
        return byte == '0' ? Phase::kZero : Phase::kDigits;
      case Phase::kZero:
        return std::nullopt;
      case Phase::kDigits:
        return Phase::kDigits;
      case Phase::kPoint:
      case Phase::kFraction:
        return Phase::kFraction;
      default:
        return Phase::kExponent;
    }
  }
  if (byte == '-' && phase == Phase::kStart) {
    return Phase::kMinus;
  }
  if (byte == '.' && whole) {
    return Phase::kPoint;
  }
  if ((byte == 'e' || byte == 'E') && (whole || phase == Phase::kFraction)) {
    return Phase::kLetter;
  }
  if ((byte == '-' || byte == '+') && phase == Phase::kLetter) {
    return Phase::kSign;
  }
  return std::nullopt;
}

std::string_view NumberAutomaton::candidates(StateId state) const {
  switch (this->state(state).phase) {
    case Phase::kStart:
      return "-0123456789";
    case Phase::kZero:
      return ".eE";
    case Phase::kDigits:
      return "0123456789.eE";
    case Phase::kFraction:
      return "0123456789eE";
    case Phase::kLetter:
      return "+-0123456789";
    default:
      return "0123456789";
  }
}

std::optional<std::string> NumberAutomaton::find_completion(StateId state) const {
  const State& from = this->state(state);
  return from.complete ? "" : texts_.find_completion(from.text);
}

std::shared_ptr<NumberAutomaton> NumberAutomata::find(const NumberPlan& plan, NumberStyle style) {
  const std::string key = key_of(plan, style);
  if (auto known = known_small(key)) {
    return known;
  }
  auto made = std::make_shared<NumberAutomaton>(plan, style);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<NumberAutomaton>* known = known_.find(key);
  if (known == nullptr) {
    return known_.add(key, made, made->bytes());
  }
  return *known = made;  // the old one was large, or another thread's a moment ago
}

std::shared_ptr<NumberAutomaton> NumberAutomata::known_small(const std::string& key) {
  const std::lock_guard lock(mutex_);
  known_.recount([](const auto& automaton) { return automaton->bytes(); });
  const std::shared_ptr<NumberAutomaton>* known = known_.find(key);
  return known != nullptr && (*known)->states() <= kMaxStates ? *known : nullptr;
}

uint64_t NumberAutomata::bytes() const {
  const std::lock_guard lock(mutex_);
  return known_.bytes();
}

}  // namespace specdec
