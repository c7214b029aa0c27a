#include "experiments/config/yaml_scalar.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <system_error>
#include <type_traits>

namespace specdec {
namespace {

template <class T>
bool parse_number(const std::string& text, T& value, std::errc& failure) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') {
    ++begin;
  }
  const auto result = std::from_chars(begin, end, value);
  failure = result.ec;
  return result.ec == std::errc() && result.ptr == end && begin != end;
}

/// Each convert() returns "" or what is wrong with the scalar.
template <class T>
std::string convert_integer(const YamlTree& tree, T& value) {
  std::errc failure{};
  if (tree.quoted || !parse_number(tree.text, value, failure)) {
    const bool digits = tree.text.find_first_not_of("+-0123456789") == std::string::npos;
    if (failure == std::errc::result_out_of_range && digits) {
      return fmt::format("{} is too large", tree.text);
    }
    return fmt::format("expected a whole number{}, found {}",
                       std::is_unsigned_v<T> ? " of at least 0" : "", describe(tree));
  }
  return "";
}

std::string convert(const YamlTree& tree, int64_t& value) { return convert_integer(tree, value); }
std::string convert(const YamlTree& tree, uint64_t& value) { return convert_integer(tree, value); }

std::string convert(const YamlTree& tree, double& value) {
  std::errc failure{};
  if (tree.quoted || !parse_number(tree.text, value, failure) || !std::isfinite(value)) {
    return fmt::format("expected a finite number, found {}", describe(tree));
  }
  return "";
}

std::string convert(const YamlTree& tree, bool& value) {
  if (tree.quoted || (tree.text != "true" && tree.text != "false")) {
    return fmt::format("expected true or false, found {}", describe(tree));
  }
  value = tree.text == "true";
  return "";
}

std::string convert(const YamlTree& tree, std::string& value) {
  value = tree.text;
  return "";
}

}  // namespace

std::string describe(const YamlTree& tree) {
  switch (tree.kind) {
    case YamlTree::Kind::kNull:
      return "nothing";
    case YamlTree::Kind::kList:
      return "a list";
    case YamlTree::Kind::kMap:
      return "a map";
    default:
      return tree.quoted ? fmt::format("the text \"{}\"", tree.text)
                         : fmt::format("'{}'", tree.text);
  }
}

template <class T>
std::string scalar_type_name() {
  if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else if constexpr (std::is_same_v<T, double>) {
    return "a number";
  } else {
    return "a whole number";
  }
}

template <class T>
std::string read_scalar(const YamlTree& tree, const Range<T>& range, T& value) {
  if (tree.kind != YamlTree::Kind::kScalar) {
    return fmt::format("expected {}, found {}", scalar_type_name<T>(), describe(tree));
  }
  auto message = convert(tree, value);
  if constexpr (!std::is_same_v<T, std::string> && !std::is_same_v<T, bool>) {
    if (message.empty() && (value < range.min || value > range.max)) {
      message = range.max == std::numeric_limits<T>::max()
                    ? fmt::format("{} is less than {}", value, range.min)
                    : fmt::format("{} is not between {} and {}", value, range.min, range.max);
    }
  } else {
    (void)range;
  }
  return message;
}

template <class T>
std::shared_ptr<YamlTree> scalar_tree(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return YamlTree::scalar(value, true);
  } else {
    return YamlTree::scalar(fmt::format("{}", value), false);
  }
}

template std::string read_scalar(const YamlTree&, const Range<bool>&, bool&);
template std::shared_ptr<YamlTree> scalar_tree(const bool&);
template std::string scalar_type_name<bool>();
template std::string read_scalar(const YamlTree&, const Range<int64_t>&, int64_t&);
template std::shared_ptr<YamlTree> scalar_tree(const int64_t&);
template std::string scalar_type_name<int64_t>();
template std::string read_scalar(const YamlTree&, const Range<uint64_t>&, uint64_t&);
template std::shared_ptr<YamlTree> scalar_tree(const uint64_t&);
template std::string scalar_type_name<uint64_t>();
template std::string read_scalar(const YamlTree&, const Range<double>&, double&);
template std::shared_ptr<YamlTree> scalar_tree(const double&);
template std::string scalar_type_name<double>();
template std::string read_scalar(const YamlTree&, const Range<std::string>&, std::string&);
template std::shared_ptr<YamlTree> scalar_tree(const std::string&);
template std::string scalar_type_name<std::string>();

}  // namespace specdec
