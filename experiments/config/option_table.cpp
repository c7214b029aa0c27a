#include "experiments/config/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace specdec {
namespace {

template <class T>
std::string describe_numbers(const Range<T>& range) {
  const bool has_min = range.min != std::numeric_limits<T>::lowest();
  if (range.max != std::numeric_limits<T>::max()) {
    return has_min ? fmt::format("{} to {}", range.min, range.max)
                   : fmt::format("up to {}", range.max);
  }
  return has_min ? fmt::format("{} or more", range.min) : "";
}

template <class T>
std::string describe_list(const std::vector<T>& values) {
  return values.empty() ? "none" : fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace

std::string describe_default(bool value) { return value ? "true" : "false"; }
std::string describe_default(int64_t value) { return fmt::format("{}", value); }
std::string describe_default(double value) { return fmt::format("{}", value); }
std::string describe_default(const std::vector<int64_t>& values) { return describe_list(values); }
std::string describe_default(const std::vector<double>& values) { return describe_list(values); }

std::string describe_values(const Range<bool>&) { return "true or false"; }
std::string describe_values(const Range<int64_t>& range) { return describe_numbers(range); }
std::string describe_values(const Range<double>& range) { return describe_numbers(range); }
std::string describe_values(const Range<std::filesystem::path>&) { return ""; }

void read_share(const ConfigNode& node, const std::string& name, double& value) {
  const auto given = node.get<double>(name, value, {0.0, 1.0});
  if (given == 0.0) {
    node.fail(name, "must be above 0");
  } else {
    value = given;
  }
}

}  // namespace specdec
