#include "core/jinja/template.h"

#include "core/jinja/parser.h"
#include "core/jinja/renderer.h"

namespace specdec {

JinjaTemplate::JinjaTemplate(std::string_view source) : statements_(parse_jinja(source)) {}

JinjaText JinjaTemplate::render(const Variables& variables,
                                const std::vector<std::string>& unknown) const {
  return JinjaRenderer(variables, unknown).render(statements_);
}

}  // namespace specdec
