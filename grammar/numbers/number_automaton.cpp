#include "grammar/numbers/number_automaton.h"

#include <functional>

#include "core/error.h"

namespace specdec {
namespace {

constexpr uint32_t kMostStates = 2'000;  ///< a larger automaton is left to its grammars

bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

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
}

uint64_t NumberAutomaton::bytes() const {
  return sizeof *this + states_.bytes() + transitions_.bytes() + text_bytes_;
}

std::optional<NumberAutomaton::StateId> NumberAutomaton::next(StateId state, uint8_t byte) {
  const uint64_t key = uint64_t{state} << 8 | byte;
  if (const StateId found = transitions_.find(key); found != FlatMap::kNone) {
    return found;
  }
  const State& from = states_[state];
  const auto phase = after(from.phase, byte);
  if (!phase) {
    return std::nullopt;
  }
  std::string text = texts_.representative(from.text + static_cast<char>(byte));
  StateId next = kDead;
  if (texts_.can_complete(text)) {
    const bool complete = texts_.is_complete(text);
    const uint32_t known = states_.size();
    const size_t bytes = text.capacity();
    next = states_.intern({*phase, complete, std::move(text)});
    text_bytes_ += next == known ? bytes : 0;
  }
  transitions_.add(key, next);
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
  switch (states_[state].phase) {
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
  return is_complete(state) ? "" : texts_.find_completion(states_[state].text);
}

std::shared_ptr<NumberAutomaton> NumberAutomata::find(const NumberPlan& plan, NumberStyle style) {
  const std::string key = key_of(plan, style);
  known_.recount([](const auto& automaton) { return automaton->bytes(); });
  if (std::shared_ptr<NumberAutomaton>* known = known_.find(key)) {
    if ((*known)->states() > kMostStates) {
      *known = std::make_shared<NumberAutomaton>(plan, style);
    }
    return *known;
  }
  auto made = std::make_shared<NumberAutomaton>(plan, style);
  const uint64_t bytes = made->bytes();
  return known_.add(key, std::move(made), bytes);
}

}  // namespace specdec
