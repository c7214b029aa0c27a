#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace specdec {

/// JSON as text: on one line, or with `indent` spaces a level. Bytes that are no UTF-8 (a token's
/// piece, a file's name) become U+FFFD.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace specdec
