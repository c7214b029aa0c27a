#include "experiments/config/yaml_advice.h"

#include <algorithm>
#include <vector>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr const char* kBadColon = "illegal map value";
constexpr const char* kNoEnd = "end of map not found";

/// The parser's words in those of a user.
std::string plain_message(const std::string& message) {
  if (message == kBadColon) {
    return "a ':' that cannot begin a value here: write each key on a line of its own with ': ' "
           "after it, and quote a text that holds ': '";
  }
  if (message == "illegal block entry") {
    return "a list item ('- ') where none can be: check its indentation";
  }
  if (message == kNoEnd || message == "end of sequence not found") {
    return "this line is indented like none above it: check its spaces";
  }
  return message == "unknown token" ? "a character that cannot begin a value: quote the text"
                                    : message;
}

/// White space before a line's text.
size_t indentation(std::string_view text, int64_t line) {
  for (int64_t i = 1; i < line; ++i) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return std::min(text.find_first_not_of(" \t"), text.size());
}

/// The first `count` lines, without what stands behind a '#' and without white space around.
std::vector<std::string_view> first_lines(std::string_view text, int64_t count) {
  std::vector<std::string_view> lines;
  while (!text.empty() && std::ssize(lines) < count) {
    const size_t cut = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, cut);
    text.remove_prefix(std::min(cut + 1, text.size()));
    line = line.substr(0, line.starts_with('#') ? 0 : line.find(" #"));
    const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
    line.remove_prefix(begin);
    lines.push_back(line.substr(0, line.find_last_not_of(" \t\r") + 1));
  }
  return lines;
}

bool has_colon(std::string_view line) {
  return line.ends_with(':') || line.find(": ") != std::string_view::npos ||
         line.find(":\t") != std::string_view::npos;
}

}  // namespace

YamlMistake yaml_mistake(std::string_view text, int64_t line, const std::string& parser_message) {
  std::vector<std::string_view> lines;
  if (parser_message == kBadColon) {
    lines = first_lines(text, line - 1);
  } else if (parser_message == kNoEnd) {
    lines = first_lines(text, line);
  }
  const auto last =
      std::find_if(lines.rbegin(), lines.rend(), [](std::string_view one) { return !one.empty(); });
  const int64_t blamed = lines.rend() - last;
  // Lines within a text or a list over several lines need no colon.
  if (last == lines.rend() || has_colon(*last) || last->starts_with('-') || last->ends_with(']') ||
      last->ends_with('}') ||
      (parser_message == kBadColon && indentation(text, blamed) != indentation(text, line))) {
    return {.line = line, .message = plain_message(parser_message)};
  }
  return {.line = blamed,
          .message =
              "a line without ': ', where a key is expected: write ': ' between key and "
              "value, and quote a text that holds ': '"};
}

int64_t line_without_utf8(std::string_view text) {
  if (is_utf8(text)) {
    return 0;
  }
  const auto runs = utf8_runs(text);
  const auto broken =
      std::find_if(runs.begin(), runs.end(), [](const Utf8Run& run) { return !run.valid; });
  return 1 + std::count(text.begin(), text.begin() + (broken->text.data() - text.data()), '\n');
}

}  // namespace specdec
