#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/jinja/evaluator.h"
#include "core/jinja/template.h"

namespace specdec {

/// Renders a template's statements once.
class JinjaRenderer {
 public:
  JinjaRenderer(const JinjaTemplate::Variables& variables, const std::vector<std::string>& unknown);
  /// Empties the namespaces, which may hold themselves or one another.
  ~JinjaRenderer();
  JinjaRenderer(const JinjaRenderer&) = delete;
  JinjaRenderer& operator=(const JinjaRenderer&) = delete;

  /// Throws Error that begins with the line.
  JinjaText render(const std::vector<JinjaStatement>& statements);

 private:
  using Scope = std::shared_ptr<JinjaScope>;
  enum class Flow : uint8_t { kGoesOn, kBreak, kContinue };

  Flow run_all(const std::vector<JinjaStatement>& statements, const Scope& scope, JinjaText& out);
  Flow run(const JinjaStatement& one, const Scope& scope, JinjaText& out);
  Flow loop(const JinjaStatement& one, const Scope& scope, JinjaText& out);
  void filter(const JinjaStatement& one, const Scope& scope, std::vector<JinjaValue>& items);
  void require_settable(const std::vector<JinjaStatement>& unreached, const JinjaScope& scope);
  JinjaValue made_namespace(const JinjaArguments& given);
  void assign(const JinjaStatement& one, const JinjaValue& value, JinjaScope& scope);
  void assign_one(const std::string& target, const JinjaValue& value, JinjaScope& scope);
  void write(const JinjaText& text, JinjaText& out);
  void define_macro(const JinjaStatement& one, const Scope& scope);
  JinjaValue call_macro(const JinjaStatement& one, const Scope& scope, const JinjaArguments& given);

  JinjaEvaluator evaluator_;
  Scope variables_ = std::make_shared<JinjaScope>();
  std::vector<std::shared_ptr<JinjaNamespace>> namespaces_;
  int64_t namespace_writes_ = 0;
  int macros_ = 0;  // being called
};

}  // namespace specdec
