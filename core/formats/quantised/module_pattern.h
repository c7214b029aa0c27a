#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace specdec {

/// A target of compressed-tensors' config_groups: a module's name, "re:" and an expression of
/// Python that its name begins with, or a class of modules ("Linear", "Embedding").
class ModulePattern {
 public:
  /// Throws Error with the reason when the expression is none.
  explicit ModulePattern(std::string text);

  const std::string& text() const { return text_; }
  bool is_expression() const { return code_ != nullptr; }
  /// Whether the pattern is, or its expression matches, the name of a module.
  bool has_name(std::string_view module) const;
  /// Whether a module is of the pattern's class: Embedding those called embed_tokens..., Linear the
  /// others.
  bool has_class(std::string_view module) const;

 private:
  std::string text_;
  std::shared_ptr<const void> code_;  ///< of pcre2; null for names and classes
};

}  // namespace specdec
