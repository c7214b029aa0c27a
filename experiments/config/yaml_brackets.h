#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace specdec {

/// A bracket of a flow map or list that does not fit: `message` says which, "" when all do.
struct BracketMistake {
  size_t line = 0;  ///< of the bracket, from 1
  std::string message = {};
};

/// Looks at the brackets of YAML that could not be parsed. Quoted text, comments and block scalars
/// are skipped; a bracket within a plain word is none.
BracketMistake find_bracket_mistake(std::string_view text);

}  // namespace specdec
