#include "core/jinja/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/jinja/builtins.h"

namespace specdec {
namespace {

using ExpressionKind = JinjaExpression::Kind;

constexpr int64_t kMaxOpen = 400;

/// Names that mean something in jinja2, but nothing here.
constexpr std::string_view kUnsupportedNames[] = {"caller", "varargs", "kwargs", "self", "super",
                                                  "lipsum", "cycler",  "joiner", "dict"};

JinjaValue arithmetic(const std::string& name, const JinjaValue& left, const JinjaValue& right) {
  const int64_t a = integer_of(left);
  const int64_t b = integer_of(right);
  int64_t result = 0;
  bool overflows = false;
  if (name == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (name == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (name == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (b == 0) {
    throw Error(fmt::format("it divides {} by 0.", a));
  } else if (b == -1) {  // the least integer / -1 overflows
    overflows = name == "//" && __builtin_sub_overflow(int64_t{0}, a, &result);
  } else {  // Python rounds down
    const int64_t quotient = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
    result = name == "//" ? quotient : a - quotient * b;
  }
  if (overflows) {
    throw Error(fmt::format("{} {} {} is too large an integer.", a, name, b));
  }
  return result;
}

JinjaValue concatenated(JinjaText left, const JinjaText& right, JinjaBudget& budget) {
  budget.take(left.size() + right.size(), 2);
  left += right;
  return left;
}

JinjaValue combined(const std::string& name, const JinjaValue& left, const JinjaValue& right,
                    JinjaBudget& budget) {
  if (name == "~" || (name == "+" && holds<JinjaText>(left) && holds<JinjaText>(right))) {
    return concatenated(printed(left), printed(right), budget);
  }
  const auto* a = as_list(left);
  const auto* b = as_list(right);
  if (name == "+" && a != nullptr && b != nullptr && a->kind == b->kind &&
      a->kind <= JinjaList::Kind::kTuple) {
    budget.take(a->values.size() + b->values.size(), JinjaBudget::kValue);
    std::vector<JinjaValue> all = a->values;
    all.insert(all.end(), b->values.begin(), b->values.end());
    return jinja_list(std::move(all), a->kind);
  }
  if (!is_integer(left) || !is_integer(right)) {
    throw Error(fmt::format("{} {} {} is not supported.", kind_of(left), name, kind_of(right)));
  }
  return arithmetic(name, left, right);
}

bool compared(const std::string& name, const JinjaValue& left, const JinjaValue& right,
              JinjaBudget& budget) {
  if (name == "==" || name == "!=") {
    return are_equal(left, right, budget) == (name == "==");
  }
  if (name == "in" || name == "not in") {
    return contains(right, left, budget) == (name == "in");
  }
  const int64_t order = ordered(left, right, budget);
  return name == "<" ? order < 0 : name == "<=" ? order <= 0 : name == ">" ? order > 0 : order >= 0;
}

}  // namespace

const JinjaValue* JinjaScope::find(std::string_view name) const {
  for (const JinjaScope* scope = this; scope != nullptr; scope = scope->around.get()) {
    const auto found = scope->names.find(name);
    if (found == scope->names.end()) {
      continue;
    }
    for (const JinjaScope* passed = this; passed != scope; passed = passed->around.get()) {
      if (!passed->found_around.contains(name)) {
        passed->found_around.emplace(name, passed != this);
      }
    }
    return &found->second;
  }
  return nullptr;
}

void JinjaScope::require_settable(std::string_view name) const {
  const auto earlier = found_around.find(name);
  if (earlier != found_around.end() && earlier->second) {
    throw Error(fmt::format("setting {} after a block within has read it is not supported.",
                            shortened(name)));
  }
}

void JinjaScope::set(std::string_view name, JinjaValue value) {
  require_settable(name);
  names.insert_or_assign(std::string(name), std::move(value));
}

JinjaEvaluator::Nesting::Nesting(JinjaEvaluator& evaluator) : evaluator_(evaluator) {
  if (evaluator.depth_ >= kMaxOpen) {
    throw Error("its blocks, macros and expressions are nested too deeply.");
  }
  ++evaluator.depth_;
}

void JinjaEvaluator::step(int64_t line) {
  line_ = line;
  budget_.take(1, JinjaBudget::kStep);
}

JinjaValue JinjaEvaluator::value(const JinjaExpression& expression, const JinjaScope& scope) {
  step(expression.line);
  const Nesting nesting(*this);
  const auto part = [&](size_t i) { return value(expression.parts[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::kLiteral:
      return expression.literal;
    case ExpressionKind::kName:
      return name_value(expression.name, scope);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
    case ExpressionKind::kDict:
      return collection(expression, scope);
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem:
    case ExpressionKind::kSlice:
      return access(expression, scope);
    case ExpressionKind::kCall:
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest:
      return call(expression, scope);
    case ExpressionKind::kNot:
      return !is_true(part(0));
    case ExpressionKind::kNegative:
      return arithmetic("-", int64_t{0}, part(0));
    case ExpressionKind::kOperator: {
      const JinjaValue left = part(0);
      return combined(expression.name, left, part(1), budget_);
    }
    case ExpressionKind::kCompare: {
      const JinjaValue left = part(0);
      return compared(expression.name, left, part(1), budget_);
    }
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
    case ExpressionKind::kConditional:
      return choice(expression, scope);
    case ExpressionKind::kSpread:  // only among the arguments of calls
    case ExpressionKind::kUnsupported:
      break;
  }
  throw Error(fmt::format("{} is not supported.", shortened(expression.name)));
}

JinjaValue JinjaEvaluator::name_value(const std::string& name, const JinjaScope& scope) const {
  if (const JinjaValue* found = scope.find(name)) {
    return *found;
  }
  const bool unsupported = std::find(unknown_.begin(), unknown_.end(), name) != unknown_.end() ||
                           std::find(std::begin(kUnsupportedNames), std::end(kUnsupportedNames),
                                     name) != std::end(kUnsupportedNames);
  if (unsupported) {
    throw Error(fmt::format("the name {} is not supported.", shortened(name)));
  }
  return JinjaUndefined{shortened(name)};
}

JinjaValue JinjaEvaluator::collection(const JinjaExpression& expression, const JinjaScope& scope) {
  std::vector<JinjaValue> values;
  for (const JinjaExpression& part : expression.parts) {
    values.push_back(value(part, scope));
  }
  if (expression.kind != ExpressionKind::kDict) {
    return jinja_list(std::move(values), expression.kind == ExpressionKind::kList
                                             ? JinjaList::Kind::kList
                                             : JinjaList::Kind::kTuple);
  }
  std::vector<JinjaDict::Entry> entries;
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    entries.emplace_back(values[i], values[i + 1]);
  }
  return jinja_dict(std::move(entries), budget_);
}

JinjaValue JinjaEvaluator::access(const JinjaExpression& expression, const JinjaScope& scope) {
  const JinjaValue whole = value(expression.parts[0], scope);
  namespace_reads_ += holds<std::shared_ptr<JinjaNamespace>>(whole) ? 1 : 0;
  if (expression.kind == ExpressionKind::kAttribute) {
    return attribute_of(whole, expression.name, budget_);
  }
  const JinjaValue first = value(expression.parts[1], scope);
  if (expression.kind == ExpressionKind::kItem) {
    return item_of(whole, first, budget_);
  }
  const JinjaValue end = value(expression.parts[2], scope);
  return slice_of(whole, first, end, value(expression.parts[3], scope), budget_);
}

/// `and` and `or` give one of their operands, as in Python.
JinjaValue JinjaEvaluator::choice(const JinjaExpression& expression, const JinjaScope& scope) {
  const auto part = [&](size_t i) { return value(expression.parts[i], scope); };
  if (expression.kind == ExpressionKind::kConditional) {
    if (is_true(part(1))) {
      return part(0);
    }
    return expression.parts.size() > 2 ? part(2)
                                       : JinjaUndefined{"the value of an if without else"};
  }
  const JinjaValue left = part(0);
  return is_true(left) == (expression.kind == ExpressionKind::kOr) ? left : part(1);
}

JinjaArguments JinjaEvaluator::arguments(const JinjaExpression& call, const JinjaScope& scope) {
  JinjaArguments all{budget_, {}, {}};
  for (size_t i = 1; i < call.parts.size(); ++i) {
    const bool spreads = call.parts[i].kind == ExpressionKind::kSpread;
    JinjaValue one = value(spreads ? call.parts[i].parts[0] : call.parts[i], scope);
    if (spreads) {
      const std::vector<JinjaValue> items = items_of(one, budget_);
      all.values.insert(all.values.end(), items.begin(), items.end());
    } else {
      all.values.push_back(std::move(one));
    }
  }
  for (const auto& [name, part] : call.named) {
    all.named.emplace_back(name, value(part, scope));
  }
  return all;
}

JinjaValue JinjaEvaluator::call(const JinjaExpression& expression, const JinjaScope& scope) {
  const JinjaValue callee = value(expression.parts[0], scope);
  const JinjaArguments given = arguments(expression, scope);
  line_ = expression.line;
  if (expression.kind == ExpressionKind::kFilter) {
    return apply_filter(expression.name, callee, given);
  }
  if (expression.kind == ExpressionKind::kTest) {
    return apply_test(expression.name, callee, given);
  }
  const auto* function = std::get_if<std::shared_ptr<JinjaFunction>>(&callee);
  if (function == nullptr && expression.parts[0].name == "strftime_now") {
    throw Error("it writes today's date (strftime_now), so results would depend on the day.");
  }
  if (function == nullptr) {
    throw Error(fmt::format("it calls {}.", kind_of(callee)));
  }
  return (*function)->call(given);
}

}  // namespace specdec
