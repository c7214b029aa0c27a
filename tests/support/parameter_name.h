#pragma once
#include <gtest/gtest.h>

#include <cctype>
#include <string>

namespace specdec {

/// Names the tests of a parameter by what is printed of it: letters, digits and underscores.
struct ParameterName {
  template <class Parameter>
  std::string operator()(const testing::TestParamInfo<Parameter>& info) const {
    std::string name;
    for (const char c : testing::PrintToString(info.param)) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
        name += c;
      } else if (!name.empty() && name.back() != '_') {
        name += '_';
      }
    }
    return name.substr(0, name.find_last_not_of('_') + 1);
  }
};

}  // namespace specdec
