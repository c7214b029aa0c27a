#include "core/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/jinja/text.h"

namespace specdec {
namespace {

using TokenKind = JinjaToken::Kind;
using ExpressionKind = JinjaExpression::Kind;

constexpr int kMaxNested = 200;

constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};

}  // namespace

JinjaExpressionParser::Nesting::Nesting(JinjaExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ >= kMaxNested) {
    parser.fail("it is nested too deeply.");
  }
  ++parser.depth_;
}

void JinjaExpressionParser::fail(const std::string& what) const {
  throw Error(fmt::format("line {}: {}", current().line, what));
}

bool JinjaExpressionParser::is(TokenKind kind, std::string_view text) const {
  return current().kind == kind && current().text == text;
}

bool JinjaExpressionParser::skip(TokenKind kind, std::string_view text) {
  const bool found = is(kind, text);
  at_ += found ? 1 : 0;
  return found;
}

void JinjaExpressionParser::expect(TokenKind kind, std::string_view text) {
  if (!skip(kind, text)) {
    fail(fmt::format("'{}' is needed where '{}' stands.", text, shortened(current().text)));
  }
}

std::string JinjaExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName) {
    fail(fmt::format("a name is needed where '{}' stands.", shortened(current().text)));
  }
  return next().text;
}

void JinjaExpressionParser::deepen(JinjaExpression& whole, const JinjaExpression& part) const {
  whole.depth = std::max(whole.depth, part.depth + 1);
  if (whole.depth > kMaxNested) {
    fail("it is nested too deeply.");
  }
}

void JinjaExpressionParser::add(JinjaExpression& whole, JinjaExpression part) const {
  deepen(whole, part);
  whole.parts.push_back(std::move(part));
}

JinjaExpression JinjaExpressionParser::expression(bool conditional) {
  const Nesting nesting(*this);
  JinjaExpression value = either();
  while (conditional && skip_name("if")) {
    value = made(ExpressionKind::kConditional, "", std::move(value), either());
    if (skip_name("else")) {
      add(value, expression());
    }
  }
  return value;
}

bool JinjaExpressionParser::tuple_ends() const {
  return current().kind == TokenKind::kEnd || is(TokenKind::kOperator, ")") || is_name("recursive");
}

JinjaExpression JinjaExpressionParser::tuple(bool conditional) {
  JinjaExpression all = made(ExpressionKind::kTuple, "");
  bool is_tuple = false;
  while (!tuple_ends()) {
    add(all, expression(conditional));
    if (!skip_operator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (is_tuple) {
    return all;
  }
  if (all.parts.empty()) {
    fail(fmt::format("an expression is needed where '{}' stands.", shortened(current().text)));
  }
  JinjaExpression one = std::move(all.parts.front());
  return one;
}

JinjaExpression JinjaExpressionParser::either() {
  JinjaExpression left = both();
  while (skip_name("or")) {
    left = made(ExpressionKind::kOr, "", std::move(left), both());
  }
  return left;
}

JinjaExpression JinjaExpressionParser::both() {
  JinjaExpression left = negation();
  while (skip_name("and")) {
    left = made(ExpressionKind::kAnd, "", std::move(left), negation());
  }
  return left;
}

JinjaExpression JinjaExpressionParser::negation() {
  const Nesting nesting(*this);
  if (skip_name("not")) {
    return made(ExpressionKind::kNot, "", negation());
  }
  return comparison();
}

JinjaExpression JinjaExpressionParser::comparison() {
  JinjaExpression left = sum();
  bool chained = false;
  while (true) {
    std::string name;
    if (current().kind == TokenKind::kOperator &&
        std::find(std::begin(kComparisons), std::end(kComparisons), current().text) !=
            std::end(kComparisons)) {
      name = next().text;
    } else if (skip_name("in")) {
      name = "in";
    } else if (is_name("not") && tokens_[at_ + 1].text == "in") {
      at_ += 2;
      name = "not in";
    } else {
      return left;
    }
    left = made(chained ? ExpressionKind::kUnsupported : ExpressionKind::kCompare,
                chained ? "a chain of comparisons" : name, std::move(left), sum());
    chained = true;
  }
}

JinjaExpression JinjaExpressionParser::sum() {
  JinjaExpression left = concatenation();
  while (is(TokenKind::kOperator, "+") || is(TokenKind::kOperator, "-")) {
    const std::string name = next().text;
    left = made(ExpressionKind::kOperator, name, std::move(left), concatenation());
  }
  return left;
}

JinjaExpression JinjaExpressionParser::concatenation() {
  JinjaExpression left = product();
  while (skip_operator("~")) {
    left = made(ExpressionKind::kOperator, "~", std::move(left), product());
  }
  return left;
}

JinjaExpression JinjaExpressionParser::product() {
  JinjaExpression left = power();
  while (current().kind == TokenKind::kOperator &&
         (current().text == "*" || current().text == "/" || current().text == "//" ||
          current().text == "%")) {
    const std::string name = next().text;
    left = name == "/"
               ? made(ExpressionKind::kUnsupported, "the operator /", std::move(left), power())
               : made(ExpressionKind::kOperator, name, std::move(left), power());
  }
  return left;
}

JinjaExpression JinjaExpressionParser::power() {
  JinjaExpression left = unary(true);
  while (skip_operator("**")) {
    left = made(ExpressionKind::kUnsupported, "the operator **", std::move(left), unary(true));
  }
  return left;
}

JinjaExpression JinjaExpressionParser::unary(bool filtered) {
  const Nesting nesting(*this);
  JinjaExpression value;
  if (skip_operator("-")) {
    value = made(ExpressionKind::kNegative, "", unary(false));
  } else if (skip_operator("+")) {
    value = made(ExpressionKind::kUnsupported, "the sign +", unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return filtered ? filters(std::move(value)) : value;
}

JinjaExpression JinjaExpressionParser::primary() {
  JinjaExpression value = made(ExpressionKind::kLiteral, "");
  if (current().kind == TokenKind::kString) {
    std::string text;
    while (current().kind == TokenKind::kString) {
      text += next().text;
    }
    value.literal = jinja_text(text);
  } else if (current().kind == TokenKind::kInteger) {
    value.literal = static_cast<int64_t>(std::stoll(next().text));
  } else if (current().kind == TokenKind::kName) {
    const std::string name = next().text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      value.literal = name == "true" || name == "True";
    } else if (name != "none" && name != "None") {
      value.kind = ExpressionKind::kName;
      value.name = name;
    }
  } else {
    return bracketed();
  }
  return value;
}

JinjaExpression JinjaExpressionParser::bracketed() {
  if (skip_operator("(")) {
    JinjaExpression value =
        is(TokenKind::kOperator, ")") ? made(ExpressionKind::kTuple, "") : tuple();
    expect(TokenKind::kOperator, ")");
    return value;
  }
  const bool dict = is(TokenKind::kOperator, "{");
  if (!dict && !is(TokenKind::kOperator, "[")) {
    fail(fmt::format("an expression is needed where '{}' stands.", shortened(current().text)));
  }
  JinjaExpression value = made(dict ? ExpressionKind::kDict : ExpressionKind::kList, "");
  const std::string end = next().text == "{" ? "}" : "]";
  while (!is(TokenKind::kOperator, end)) {
    add(value, expression());
    if (dict) {
      expect(TokenKind::kOperator, ":");
      add(value, expression());
    }
    if (!skip_operator(",")) {
      break;
    }
  }
  expect(TokenKind::kOperator, end);
  return value;
}

JinjaExpression JinjaExpressionParser::postfix(JinjaExpression value) {
  while (true) {
    if (skip_operator(".")) {
      if (current().kind == TokenKind::kInteger) {
        JinjaExpression item = made(ExpressionKind::kLiteral, "");
        item.literal = static_cast<int64_t>(std::stoll(next().text));
        value = made(ExpressionKind::kItem, "", std::move(value), std::move(item));
      } else {
        value = made(ExpressionKind::kAttribute, expect_name(), std::move(value));
      }
    } else if (skip_operator("[")) {
      value = subscript(std::move(value));
    } else if (is(TokenKind::kOperator, "(")) {
      value = made(ExpressionKind::kCall, "", std::move(value));
      arguments(value);
    } else {
      return value;
    }
  }
}

JinjaExpression JinjaExpressionParser::subscript(JinjaExpression value) {
  JinjaExpression none = made(ExpressionKind::kLiteral, "");
  if (is(TokenKind::kOperator, ":")) {
    return slice(std::move(value), std::move(none));
  }
  JinjaExpression item = expression();
  if (is(TokenKind::kOperator, ":")) {
    return slice(std::move(value), std::move(item));
  }
  expect(TokenKind::kOperator, "]");
  return made(ExpressionKind::kItem, "", std::move(value), std::move(item));
}

JinjaExpression JinjaExpressionParser::slice(JinjaExpression value, JinjaExpression begin) {
  JinjaExpression result = made(ExpressionKind::kSlice, "", std::move(value), std::move(begin));
  for (int i = 0; i < 2; ++i) {
    const bool given =
        skip_operator(":") && !is(TokenKind::kOperator, ":") && !is(TokenKind::kOperator, "]");
    add(result, given ? expression() : made(ExpressionKind::kLiteral, ""));
  }
  expect(TokenKind::kOperator, "]");
  return result;
}

JinjaExpression JinjaExpressionParser::filters(JinjaExpression value) {
  while (true) {
    if (skip_operator("|")) {
      value = made(ExpressionKind::kFilter, expect_name(), std::move(value));
      if (is(TokenKind::kOperator, "(")) {
        arguments(value);
      }
    } else if (skip_name("is")) {
      value = test(std::move(value));
    } else if (is(TokenKind::kOperator, "(")) {
      value = made(ExpressionKind::kCall, "", std::move(value));
      arguments(value);
    } else {
      return value;
    }
  }
}

JinjaExpression JinjaExpressionParser::test(JinjaExpression value) {
  const bool negated = skip_name("not");
  value = made(ExpressionKind::kTest, expect_name(), std::move(value));
  const TokenKind kind = current().kind;
  const bool word = kind == TokenKind::kName;
  if (is(TokenKind::kOperator, "(")) {
    arguments(value);
  } else if (word && is_name("is")) {
    fail("two tests cannot follow one another.");
  } else if ((word && !is_name("else") && !is_name("or") && !is_name("and")) ||
             kind == TokenKind::kString || kind == TokenKind::kInteger ||
             is(TokenKind::kOperator, "[") || is(TokenKind::kOperator, "{")) {
    add(value, postfix(primary()));
  }
  return negated ? made(ExpressionKind::kNot, "", std::move(value)) : value;
}

void JinjaExpressionParser::arguments(JinjaExpression& call) {
  expect(TokenKind::kOperator, "(");
  bool spread = false;
  while (!is(TokenKind::kOperator, ")")) {
    if (is(TokenKind::kOperator, "**") || (spread && is(TokenKind::kOperator, "*"))) {
      fail(fmt::format("the argument {} is not supported.", spread ? "* after *" : "**"));
    }
    const bool named = current().kind == TokenKind::kName &&
                       tokens_[at_ + 1].kind == TokenKind::kOperator &&
                       tokens_[at_ + 1].text == "=";
    if (named) {
      const std::string name = next().text;
      next();
      if (std::any_of(call.named.begin(), call.named.end(),
                      [&](const auto& one) { return one.name == name; })) {
        fail(fmt::format("the argument {} comes twice.", shortened(name)));
      }
      call.named.push_back({name, expression()});
      deepen(call, call.named.back().value);
    } else if (skip_operator("*")) {
      spread = true;
      add(call, made(ExpressionKind::kSpread, "", expression()));
    } else if (!call.named.empty() || spread) {
      fail(fmt::format("an argument without a name follows {}.", spread ? "*" : "one with a name"));
    } else {
      add(call, expression());
    }
    if (!skip_operator(",")) {
      break;
    }
  }
  expect(TokenKind::kOperator, ")");
}

}  // namespace specdec
