#include "experiments/metrics/jsonl.h"

#include <algorithm>

#include "core/error.h"
#include "core/formats/strict_json.h"

namespace specdec {
void read_json_lines(std::string_view text, const std::string& name, const std::string& kind,
                     const std::function<void(const nlohmann::json& line, int64_t number)>& read) {
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) {
      continue;
    }
    try {
      const auto json = parse_json_line(line);
      if (!json.is_object()) {
        throw Error(fmt::format("is not an object but {}", json.type_name()));
      }
      read(json, number);
    } catch (const InternalError&) {
      throw;
    } catch (const std::exception& exception) {
      throw Error(
          fmt::format("{}:{}: {}; expected {}", name, number, plain_json_message(exception), kind));
    }
  }
}

}  // namespace specdec
