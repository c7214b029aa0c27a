#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace specdec {

/// Calls `read` with the object of each line of a JSON Lines text, and its number from one; blank
/// lines are skipped. A line that is no JSON object, and whatever `read` or the JSON library throws
/// (a key that is missing, a value of the wrong type), becomes an Error "name:line: ...; expected
/// `kind`".
void read_json_lines(std::string_view text, const std::string& name, const std::string& kind,
                     const std::function<void(const nlohmann::json& line, int64_t number)>& read);

}  // namespace specdec
