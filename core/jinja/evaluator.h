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

  /// Names that were looked up here and found around: whether a scope within looked first.
  mutable std::map<std::string, bool, std::less<>> found_around;

  /// The value of a name; nullptr where there is none.
  const JinjaValue* find(std::string_view name) const;
  /// Throws where a scope within read the name before: jinja2 would have hidden it from there.
  void require_settable(std::string_view name) const;
  void set(std::string_view name, JinjaValue value);
};

/// Evaluates expressions as jinja2 does. Throws Error for what jinja2 refuses and for what is not
/// supported, by name.
class JinjaEvaluator {
 public:
  /// Reading a name of `unknown` is an error.
  explicit JinjaEvaluator(const std::vector<std::string>& unknown) : unknown_(unknown) {}

  JinjaValue value(const JinjaExpression& expression, const JinjaScope& scope);
  /// Line of the expression or statement that was looked at last.
  int64_t line() const { return line_; }
  /// Takes a step of the budget.
  void step(int64_t line);
  JinjaBudget& budget() { return budget_; }
  /// How often attributes of namespaces were read.
  int64_t namespace_reads() const { return namespace_reads_; }

  /// Keeps expressions, blocks and macros within one another from exhausting the stack.
  class Nesting {
   public:
    explicit Nesting(JinjaEvaluator& evaluator);
    ~Nesting() { --evaluator_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    JinjaEvaluator& evaluator_;
  };

 private:
  JinjaValue name_value(const std::string& name, const JinjaScope& scope) const;
  JinjaValue collection(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaValue access(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaValue choice(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaValue call(const JinjaExpression& expression, const JinjaScope& scope);
  JinjaArguments arguments(const JinjaExpression& call, const JinjaScope& scope);

  const std::vector<std::string>& unknown_;
  int64_t line_ = 1;
  int64_t namespace_reads_ = 0;
  int64_t depth_ = 0;
  JinjaBudget budget_;
};

}  // namespace specdec
