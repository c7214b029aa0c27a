#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "experiments/config/yaml_tree.h"

namespace specdec {

/// Values that a number may have.
template <class T>
struct Range {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

/// Converts a scalar to T (bool, int64_t, uint64_t, double or std::string), strictly; returns "" or
/// what is wrong with it. Whole numbers are decimal; NaN and infinity are no numbers; only true and
/// false are booleans; a quoted scalar is text.
template <class T>
std::string read_scalar(const YamlTree& tree, const Range<T>& range, T& value);

/// The scalar that read_scalar reads back as `value`.
template <class T>
std::shared_ptr<YamlTree> scalar_tree(const T& value);

/// "true or false", "text", "a number", "a whole number"
template <class T>
std::string scalar_type_name();

/// Describes a value for messages: "a list", "nothing", "'8'", "the text \"8\"".
std::string describe(const YamlTree& tree);

}  // namespace specdec
