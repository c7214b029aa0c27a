#include "core/formats/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "core/formats/file_content.h"

namespace specdec {
namespace {

using nlohmann::json;

// What the watch has against a text that is JSON.
class RefusedJson final : public Error {
 public:
  using Error::Error;
};

// Notes the keys of the objects that are open, to see one that comes twice.
class KeyWatch {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    if (depth > kMaxJsonDepth) {
      throw RefusedJson(fmt::format("nested more than {} levels deep", kMaxJsonDepth));
    }
    if (event == json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) {
        throw RefusedJson(fmt::format("the key \"{}\" stands twice in one object", key));
      }
    }
    return true;
  }

 private:
  std::vector<std::unordered_set<std::string>> open_;
};

// Reads a text and counts the bytes that the parser took.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t& taken) : at_(at), taken_(&taken) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* taken_;
};

// "3:14" for a byte offset that counts from one, as the parser's errors do.
std::string line_and_column(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("{}:{}", line, before.size() - line_start + 1);
}

// Where the parser stops at what is refused though it is JSON's grammar, as a number that no double
// holds: such errors do not say it. Counts from one.
size_t refused_byte(std::string_view text) {
  size_t taken = 0;
  KeyWatch watch;
  try {
    const json parsed =
        json::parse(CountingIterator(text.data(), taken),
                    CountingIterator(text.data() + text.size(), taken), std::ref(watch));
  } catch (const std::exception&) {
    // It was refused before, too.
  }
  return taken;
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

json parse_json_line(std::string_view line) {
  KeyWatch watch;
  return json::parse(line.begin(), line.end(), std::ref(watch));
}

json parse_strict_json(std::string_view text, const std::string& where) {
  try {
    return parse_json_line(text);
  } catch (const json::parse_error& error) {
    throw_json_error(text, where, error.byte, error.what());
  } catch (const json::exception& error) {
    throw WeightsError(fmt::format("{}:{}: not valid JSON: {}", where,
                                   line_and_column(text, refused_byte(text)),
                                   plain_json_message(error)));
  } catch (const RefusedJson& error) {
    throw WeightsError(
        fmt::format("{}:{}: {}.", where, line_and_column(text, refused_byte(text)), error.what()));
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
  refuse_irregular(path);
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
