#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/jinja/syntax.h"

namespace specdec {

/// The names that a place in a template sees: its own, and those around it.
struct JinjaScope {
  std::map<std::string, JinjaValue, std::less<>> names;
  std::shared_ptr<JinjaScope> around;

  /// nullptr where there is none.
  const JinjaValue* find(std::string_view name) const;
};

/// Evaluates expressions as jinja2 does. Throws Error for what jinja2 refuses and for what is not
/// supported, by name.
class JinjaEvaluator {
 public:
  /// Reading a name of `unknown` is an error.
  explicit JinjaEvaluator(const std::vector<std::string>& unknown) : unknown_(unknown) {}

  JinjaValue value(const JinjaExpression& expression, const JinjaScope& scope);
  /// Of the expression or statement that was looked at last.
  int64_t line() const { return line_; }
  /// Throws once a template has taken too many steps to be one of a chat.
  void step(int64_t line);

 private:
  JinjaValue name_value(const std::string& name, const JinjaScope& scope) const;
  JinjaValue collection(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaValue access(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaValue choice(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaValue call(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaArguments arguments(const JinjaExpression& call, const JinjaScope& scope);

  const std::vector<std::string>& unknown_;
  int64_t line_ = 1;
  int64_t steps_ = 0;
};

}  // namespace specdec
