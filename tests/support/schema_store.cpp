#include "tests/support/schema_store.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

/// The JSON files of a folder, compact, in the order of their names.
Files json_files(const std::filesystem::path& folder) {
  Files files;
  if (!std::filesystem::is_directory(folder)) {
    return files;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") {
      continue;
    }
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    try {
      files.emplace_back(entry.path().string(), to_json(parse_json(text.str(), "")));
    } catch (const GrammarError&) {  // comments, or names that come twice
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<StoredSchema> read_schema_store(const std::filesystem::path& folder) {
  std::vector<StoredSchema> schemas;
  for (auto& [file, text] : json_files(folder / "src/schemas/json")) {
    const std::string name = std::filesystem::path(file).stem().string();
    schemas.push_back({name, std::move(text), json_files(folder / "src/test" / name),
                       json_files(folder / "src/negative_test" / name)});
  }
  return schemas;
}

std::optional<std::filesystem::path> schema_store_folder() {
  const char* folder = std::getenv("SPECDEC_SCHEMASTORE");
  return folder == nullptr ? std::nullopt : std::optional<std::filesystem::path>(folder);
}

}  // namespace specdec
