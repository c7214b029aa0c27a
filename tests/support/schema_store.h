#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace specdec {

/// A schema of SchemaStore with its examples, all as JSON texts by file.
struct StoredSchema {
  std::string name;
  std::string schema;
  std::vector<std::pair<std::string, std::string>> valid, invalid;
};

/// The schemas of a copy of SchemaStore's repository: src/schemas/json/NAME.json,
/// src/test/NAME/*.json and src/negative_test/NAME/*.json. Files that are no JSON are left out.
std::vector<StoredSchema> read_schema_store(const std::filesystem::path& folder);

/// The folder that SPECDEC_SCHEMASTORE names; nothing when it is not set.
std::optional<std::filesystem::path> schema_store_folder();

}  // namespace specdec
