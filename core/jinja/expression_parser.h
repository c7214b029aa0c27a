#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/jinja/lexer.h"
#include "core/jinja/syntax.h"

namespace specdec {

/// Reads expressions from a template's tokens, with jinja2's precedences.
class JinjaExpressionParser {
 public:
  explicit JinjaExpressionParser(std::vector<JinjaToken> tokens) : tokens_(std::move(tokens)) {}

  const JinjaToken& current() const { return tokens_[at_]; }
  JinjaToken next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(JinjaToken::Kind kind, std::string_view text) const;
  bool is_name(std::string_view name) const { return is(JinjaToken::Kind::kName, name); }
  bool skip_name(std::string_view name) { return skip(JinjaToken::Kind::kName, name); }
  bool skip_operator(std::string_view text) { return skip(JinjaToken::Kind::kOperator, text); }
  void expect(JinjaToken::Kind kind, std::string_view text);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& what) const;

  /// Parses an expression; `conditional`: it may be "x if y else z".
  JinjaExpression expression(bool conditional = true);
  /// Parses an expression or a tuple "a, b".
  JinjaExpression tuple(bool conditional = true);

  /// Keeps what nests from exhausting the stack, while it lives.
  class Nesting {
   public:
    explicit Nesting(JinjaExpressionParser& parser);
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    JinjaExpressionParser& parser_;
  };

 private:
  bool skip(JinjaToken::Kind kind, std::string_view text);
  bool tuple_ends() const;
  template <class... Parts>
  JinjaExpression made(JinjaExpression::Kind kind, std::string name, Parts&&... parts) const {
    JinjaExpression result;
    result.kind = kind;
    result.line = current().line;
    result.name = std::move(name);
    (add(result, std::forward<Parts>(parts)), ...);
    return result;
  }
  void deepen(JinjaExpression& whole, const JinjaExpression& part) const;
  void add(JinjaExpression& whole, JinjaExpression part) const;
  JinjaExpression either();
  JinjaExpression both();
  JinjaExpression negation();
  JinjaExpression comparison();
  JinjaExpression sum();
  JinjaExpression concatenation();
  JinjaExpression product();
  JinjaExpression power();
  JinjaExpression unary(bool filtered);
  JinjaExpression primary();
  JinjaExpression bracketed();
  JinjaExpression postfix(JinjaExpression value);
  JinjaExpression filters(JinjaExpression value);
  JinjaExpression test(JinjaExpression value);
  JinjaExpression subscript(JinjaExpression value);
  JinjaExpression slice(JinjaExpression value, JinjaExpression begin);
  void arguments(JinjaExpression& call);

  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace specdec
