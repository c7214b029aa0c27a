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

  /// Throws Error that begins with the line.
  JinjaText render(const std::vector<JinjaStatement>& statements);

 private:
  using Scope = std::shared_ptr<JinjaScope>;
  enum class Flow : uint8_t { kGoesOn, kBreak, kContinue };

  Flow run_all(const std::vector<JinjaStatement>& statements, const Scope& scope, JinjaText& out);
  Flow run(const JinjaStatement& one, const Scope& scope, JinjaText& out);
  Flow loop(const JinjaStatement& one, const Scope& scope, JinjaText& out);
  std::vector<JinjaValue> looped_over(const JinjaStatement& one, const Scope& scope);
  void define_macro(const JinjaStatement& one, const Scope& scope);
  JinjaValue call_macro(const JinjaStatement& one, const Scope& scope, const JinjaArguments& given);

  JinjaEvaluator evaluator_;
  Scope variables_ = std::make_shared<JinjaScope>();
  int macros_ = 0;  // being called
};

}  // namespace specdec
