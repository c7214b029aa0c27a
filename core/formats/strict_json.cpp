#include "core/formats/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "core/formats/file_content.h"

namespace specdec {
namespace {

using nlohmann::json;

// Notes the keys of the objects that are open, to see one that comes twice.
class KeyWatch {
 public:
  explicit KeyWatch(const std::string& where) : where_(where) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    if (depth > kMaxJsonDepth) {
      throw WeightsError(
          fmt::format("{}: nested more than {} levels deep.", where_, kMaxJsonDepth));
    }
    if (event == json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) {
        throw WeightsError(
            fmt::format("{}: the key \"{}\" stands twice in one object.", where_, key));
      }
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> open_;
};

// "3:14" for a byte offset that counts from one, as the parser's errors do.
std::string line_and_column(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("{}:{}", line, before.size() - line_start + 1);
}

/// A message without the library's "[json.exception.type_error.302] ".
std::string without_number(const std::string& message) {
  const size_t end = message.find("] ");
  return message.rfind("[json.exception", 0) == 0 && end != std::string::npos
             ? message.substr(end + 2)
             : message;
}

}  // namespace

std::string plain_json_message(const std::exception& exception) {
  const std::string message = without_number(exception.what());
  if (const auto* error = dynamic_cast<const json::parse_error*>(&exception)) {
    const size_t start = message.find(": ");  // before it: the position in another form
    return fmt::format("not valid JSON at column {}: {}", error->byte,
                       start == std::string::npos ? message : message.substr(start + 2));
  }
  const std::string type = "type must be ";
  const std::string key = "key '";
  if (message.rfind(type, 0) == 0) {
    return "a value must be " + message.substr(type.size());
  }
  if (message.rfind(key, 0) == 0) {
    const size_t end = message.rfind("' not found");
    return fmt::format("the key '{}' is missing", message.substr(key.size(), end - key.size()));
  }
  return message;
}

json parse_strict_json(std::string_view text, const std::string& where) {
  KeyWatch watch(where);
  try {
    return json::parse(text.begin(), text.end(), std::ref(watch));
  } catch (const json::parse_error& error) {
    throw_json_error(text, where, error.byte, error.what());
  } catch (const json::exception& error) {
    throw WeightsError(fmt::format("{}: not valid JSON: {}", where, plain_json_message(error)));
  }
}

void throw_json_error(std::string_view text, const std::string& where, size_t byte,
                      const std::string& what) {
  refuse_placeholder(text, where);
  const size_t start = what.find(": ");  // before it: the library's own id and position
  throw WeightsError(fmt::format("{}:{}: not valid JSON: {}", where, line_and_column(text, byte),
                                 start == std::string::npos ? what : what.substr(start + 2)));
}

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw WeightsError(fmt::format("{}: is a folder, not a file.", path.string()));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw WeightsError(
        fmt::format("{}: cannot read: {}.", path.string(), open_failure(path, errno)));
  }
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) {
    throw WeightsError(fmt::format("{}: cannot read the whole file.", path.string()));
  }
  return text;
}

}  // namespace specdec
