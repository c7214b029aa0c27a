#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace specdec {

/// Parses JSON text. Throws WeightsError "where:line:column: ..." when it is not JSON or not UTF-8,
/// and "where: ..." when an object has a key twice, which most readers would take silently.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where);

/// The bytes of a file. Throws WeightsError when it cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace specdec
