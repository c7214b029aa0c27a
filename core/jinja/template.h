#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/jinja/syntax.h"

namespace specdec {

/// A chat template: what transformers renders with jinja2 (trim_blocks and lstrip_blocks, no
/// autoescape), for the part of Jinja that published templates use. It renders to the same text or
/// throws Error, which begins with the line and names what is not supported; never to another text.
/// Immutable.
class JinjaTemplate {
 public:
  explicit JinjaTemplate(std::string_view source);

  using Variables = std::map<std::string, JinjaValue, std::less<>>;
  /// `unknown`: names of variables that transformers may set but that are not known here; reading
  /// one is an error, while others that are missing are undefined.
  JinjaText render(const Variables& variables, const std::vector<std::string>& unknown) const;

 private:
  std::vector<JinjaStatement> statements_;
};

}  // namespace specdec
