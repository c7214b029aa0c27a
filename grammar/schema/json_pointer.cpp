#include "grammar/schema/json_pointer.h"

#include <charconv>

namespace specdec {

std::string escape_pointer(std::string_view name) {
  std::string out;
  for (const char c : name) {
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

std::string unescape_pointer(std::string_view step) {
  std::string out;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size()) {
      out += step[++i] == '1' ? '/' : '~';
    } else {
      out += step[i];
    }
  }
  return out;
}

const JsonValue* pointer_step(const JsonValue& value, const std::string& step) {
  if (!value.is(JsonValue::Type::kArray)) {
    return value.find(step);
  }
  size_t index = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
  const bool valid = error == std::errc() && end == step.data() + step.size();
  return valid && index < value.items.size() ? &value.items[index] : nullptr;
}

}  // namespace specdec
