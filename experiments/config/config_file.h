#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/config/config_node.h"

namespace specdec {

/// Reads a YAML config and applies overrides in order: "a.b=value", where the value is YAML and the
/// path goes through maps and lists (see set_at_path). Mistakes of the overrides are noted in
/// `errors`, their place being the "--set" text, or where an option of the command line stands
/// before it ("--dtype model.dtype=int8") that option with its value. A file that cannot be read or
/// parsed throws ConfigError.
std::shared_ptr<YamlTree> load_config(const std::filesystem::path& file,
                                      const std::vector<std::string>& overrides,
                                      ConfigErrors& errors);

/// Applies one override to a tree.
void apply_override(YamlTree& root, const std::string& text, ConfigErrors& errors);

/// The text of a file, without a byte order mark; a file named .gz is decompressed. Throws
/// ConfigError: missing, no regular file, unreadable, damaged, larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& file,
                           size_t max_bytes = size_t{256} << 20U);

/// Writes a file whole or not at all; see write_file, which takes the same.
void write_text_file(const std::filesystem::path& file, std::string_view text);

}  // namespace specdec
