#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "experiments/config/config_node.h"

namespace specdec {
namespace {

/// Line number at the end of "configs/a.yaml:7"; 0 when there is none. For the order of messages.
int64_t line_of(const std::string& mistake) {
  const size_t colon = mistake.find(".yaml:");
  return colon == std::string::npos ? 0 : std::strtoll(mistake.c_str() + colon + 6, nullptr, 10);
}

}  // namespace

void ConfigErrors::add(const std::string& place, const std::string& path,
                       const std::string& message) {
  auto mistake = fmt::format("{}: {}{}{}", place, path, path.empty() ? "" : ": ", message);
  if (std::find(mistakes_.begin(), mistakes_.end(), mistake) == mistakes_.end()) {
    mistakes_.push_back(std::move(mistake));
  }
}

std::string ConfigErrors::name_output(const std::filesystem::path& file, const std::string& path) {
  std::error_code ignored;
  const auto whole = std::filesystem::absolute(file, ignored).lexically_normal();
  const std::string& owner = outputs_.emplace(whole, path).first->second;
  return owner == path ? "" : owner;
}

void ConfigErrors::throw_if_any() const {
  if (mistakes_.empty()) {
    return;
  }
  auto sorted = mistakes_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const std::string& a, const std::string& b) {
    return line_of(a) < line_of(b);
  });
  throw ConfigError(fmt::format("{}", fmt::join(sorted, "\n")));
}

void note_error(const ConfigNode& node, const std::string& key, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    node.fail(key, error.what());
  }
}

}  // namespace specdec
