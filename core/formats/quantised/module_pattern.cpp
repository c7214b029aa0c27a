#include "core/formats/quantised/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

constexpr std::string_view kExpressionMark = "re:";

PCRE2_SPTR pcre2_bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::shared_ptr<const void> compile_expression(std::string_view expression) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(pcre2_bytes(expression), expression.size(),
                    PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    constexpr size_t kMostShown = 80;  // bytes
    std::array<PCRE2_UCHAR, 256> reason{};
    pcre2_get_error_message(error, reason.data(), reason.size());
    throw Error(fmt::format("is no expression: {} at byte {} of '{}'",
                            reinterpret_cast<const char*>(reason.data()), offset,
                            expression.substr(0, kMostShown)));
  }
  return {code, pcre2_code_free};
}

}  // namespace

ModulePattern::ModulePattern(std::string text) : text_(std::move(text)) {
  if (text_.starts_with(kExpressionMark)) {
    code_ = compile_expression(std::string_view(text_).substr(kExpressionMark.size()));
  }
}

bool ModulePattern::has_name(std::string_view module) const {
  if (code_ == nullptr) {
    return text_ == module;
  }
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  return pcre2_match(code, pcre2_bytes(module), module.size(), 0, 0, match.get(), nullptr) > 0;
}

bool ModulePattern::has_class(std::string_view module) const {
  const bool is_embedding =
      module.substr(module.rfind('.') + 1).starts_with("embed_tokens");  // npos + 1 = 0
  return text_ == (is_embedding ? "Embedding" : "Linear");
}

}  // namespace specdec
