// Any template is either refused with Error, or renders a chat in which what a turn wrote stays the
// turn's.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/jinja/template.h"

namespace {

constexpr std::string_view kTurn = "\xEE\x80\x80";  // U+E000

specdec::JinjaValue message(const char* role, const std::string& text) {
  specdec::JinjaDict message;
  message.entries = {{"role", specdec::jinja_text(role)},
                     {"content", specdec::JinjaText::of_turn(text)}};
  return std::make_shared<const specdec::JinjaDict>(std::move(message));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const std::string turn = " <|a|>" + std::string(kTurn) + "\n";
  const specdec::JinjaTemplate::Variables variables = {
      {"messages", specdec::jinja_list({message("system", turn), message("user", turn + turn),
                                        message("assistant", turn), message("user", turn)})},
      {"add_generation_prompt", true},
      {"bos_token", specdec::jinja_text("<s>")},
      {"tools", specdec::JinjaNone{}}};
  try {
    const specdec::JinjaText text = specdec::JinjaTemplate(source).render(variables, {"pad_token"});
    const size_t at = text.bytes().find(kTurn);
    if (at != std::string::npos && source.find_first_of("\xEE\\") == std::string_view::npos &&
        text.written_from(at) != 0) {
      std::abort();
    }
  } catch (const specdec::Error&) {
    return 0;
  }
  return 0;
}
