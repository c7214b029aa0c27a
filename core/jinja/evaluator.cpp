#include "core/jinja/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/jinja/builtins.h"

namespace specdec {
namespace {

using ExpressionKind = JinjaExpression::Kind;

constexpr int64_t kMostSteps = 1'000'000;

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
  } else if (b == 0 || b == -1) {
    throw Error(fmt::format("dividing by {} is not supported.", b));
  } else {  // Python rounds down
    const int64_t quotient = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
    result = name == "//" ? quotient : a - quotient * b;
  }
  if (overflows) {
    throw Error("an integer becomes too large.");
  }
  return result;
}

JinjaValue combined(const std::string& name, const JinjaValue& left, const JinjaValue& right) {
  if (name == "~") {
    JinjaText text = printed(left);
    text += printed(right);
    return text;
  }
  if (name == "+" && holds<JinjaText>(left) && holds<JinjaText>(right)) {
    JinjaText text = text_of(left);
    text += text_of(right);
    return text;
  }
  const auto* a = as_list(left);
  const auto* b = as_list(right);
  if (name == "+" && a != nullptr && b != nullptr && a->kind == b->kind &&
      a->kind <= JinjaList::Kind::kTuple) {
    std::vector<JinjaValue> all = a->values;
    all.insert(all.end(), b->values.begin(), b->values.end());
    return jinja_list(std::move(all), a->kind);
  }
  const auto is_integer = [](const JinjaValue& value) {
    return holds<int64_t>(value) || holds<bool>(value);
  };
  if (!is_integer(left) || !is_integer(right)) {
    throw Error(fmt::format("{} {} {} is not supported.", kind_of(left), name, kind_of(right)));
  }
  return arithmetic(name, left, right);
}

bool contains(const JinjaValue& whole, const JinjaValue& part) {
  if (const auto* text = std::get_if<JinjaText>(&whole)) {
    return text->bytes().find(text_of(part).bytes()) != std::string::npos;
  }
  if (const auto* dict = as_dict(whole)) {
    return holds<JinjaText>(part) && dict->find(text_of(part).bytes()) != nullptr;
  }
  const std::vector<JinjaValue> items = items_of(whole);
  return std::any_of(items.begin(), items.end(),
                     [&](const JinjaValue& one) { return are_equal(one, part); });
}

bool compared(const std::string& name, const JinjaValue& left, const JinjaValue& right) {
  if (name == "==" || name == "!=") {
    return are_equal(left, right) == (name == "==");
  }
  if (name == "in" || name == "not in") {
    return contains(right, left) == (name == "in");
  }
  const bool texts = holds<JinjaText>(left) && holds<JinjaText>(right);
  const int64_t a =
      texts ? text_of(left).bytes().compare(text_of(right).bytes()) : integer_of(left);
  const int64_t b = texts ? 0 : integer_of(right);
  return name == "<" ? a < b : name == "<=" ? a <= b : name == ">" ? a > b : a >= b;
}

}  // namespace

const JinjaValue* JinjaScope::find(std::string_view name) const {
  for (const JinjaScope* scope = this; scope != nullptr; scope = scope->around.get()) {
    const auto found = scope->names.find(name);
    if (found != scope->names.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

void JinjaEvaluator::step(int64_t line) {
  line_ = line;
  if (++steps_ > kMostSteps) {
    throw Error(fmt::format("it takes more than {} steps.", kMostSteps));
  }
}

JinjaValue JinjaEvaluator::value(const JinjaExpression& expression, const JinjaScope& scope) {
  step(expression.line);
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
      return combined(expression.name, left, part(1));
    }
    case ExpressionKind::kCompare: {
      const JinjaValue left = part(0);
      return compared(expression.name, left, part(1));
    }
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
    case ExpressionKind::kConditional:
      return choice(expression, scope);
    case ExpressionKind::kUnsupported:
      break;
  }
  throw Error(fmt::format("{} is not supported.", expression.name));
}

JinjaValue JinjaEvaluator::name_value(const std::string& name, const JinjaScope& scope) const {
  if (const JinjaValue* found = scope.find(name)) {
    return *found;
  }
  const bool unsupported = std::find(unknown_.begin(), unknown_.end(), name) != unknown_.end() ||
                           std::find(std::begin(kUnsupportedNames), std::end(kUnsupportedNames),
                                     name) != std::end(kUnsupportedNames);
  if (unsupported) {
    throw Error(fmt::format("the name {} is not supported.", name));
  }
  return JinjaUndefined{name};
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
  JinjaDict dict;
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    const std::string& key = text_of(values[i]).bytes();
    std::erase_if(dict.entries, [&](const auto& entry) { return entry.first == key; });
    dict.entries.emplace_back(key, values[i + 1]);
  }
  return std::make_shared<const JinjaDict>(std::move(dict));
}

JinjaValue JinjaEvaluator::access(const JinjaExpression& expression, const JinjaScope& scope) {
  const JinjaValue whole = value(expression.parts[0], scope);
  if (expression.kind == ExpressionKind::kAttribute) {
    return attribute_of(whole, expression.name);
  }
  const JinjaValue first = value(expression.parts[1], scope);
  if (expression.kind == ExpressionKind::kItem) {
    return item_of(whole, first);
  }
  const JinjaValue end = value(expression.parts[2], scope);
  return slice_of(whole, first, end, value(expression.parts[3], scope));
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
  JinjaArguments all;
  for (size_t i = 1; i < call.parts.size(); ++i) {
    all.values.push_back(value(call.parts[i], scope));
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
