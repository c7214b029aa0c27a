#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace specdec {

/// Throws ConfigError where the file that `flag` names is there, holds something and `is_own` says
/// that it is no `what`: only files of the same kind are overwritten, not a model's weights or a
/// text that were named by mistake.
void keep_other_file(const std::string& flag, const std::filesystem::path& file,
                     const std::string& what, const std::function<bool()>& is_own);

/// True for a file that begins so.
bool begins_with(const std::filesystem::path& file, std::string_view begin);
/// True for a .safetensors file with this tensor.
bool holds_tensor(const std::filesystem::path& file, const std::string& tensor);

}  // namespace specdec
