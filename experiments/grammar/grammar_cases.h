#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar_source.h"
#include "grammar/schema/json_value.h"

namespace specdec {

/// A text, and whether it is one that the grammar accepts.
struct GrammarInstance {
  struct Piece {
    std::string text;
    bool is_token = false;  ///< `text` is the name of one
  };
  std::string text;
  bool valid = false;
  std::string description;         ///< "" = the file has none
  std::vector<Piece> pieces = {};  ///< what `text` consists of, when it has tokens in it
};

/// One line of a file of schemas or grammars with instances.
struct GrammarCase {
  std::string id;
  std::string schema;  ///< its JSON text; "" with a grammar
  std::vector<GrammarInstance> tests;
  std::optional<GrammarSource> grammar = {};  ///< instead of a schema
};

/// Reads JSON Lines {id, schema, tests: [{valid, data}]}, as in MaskBench; the JSON Schema Test
/// Suite's {file, description, schema, tests} too. Instead of the schema, `grammar` may hold what a
/// config's does (see read_grammar), and instead of `data`, `text` a text as it is, or a list of
/// texts and of tokens {"token": NAME}: for grammars of all kinds. Instances are written as
/// `whitespace` says (see write_json). At most `limit` cases, 0 = all. Throws ConfigError naming
/// file and line.
std::vector<GrammarCase> read_grammar_cases(const std::filesystem::path& file,
                                            const std::string& whitespace, int64_t limit = 0);

/// Reads JSON Lines {uri, schema}: what JsonSchemaOptions::registry holds. Throws as
/// read_grammar_cases.
SchemaRegistry read_schema_registry(const std::filesystem::path& file);

/// A JSON text that a grammar of that whitespace accepts: "compact" and "any" have none, "spaced"
/// has ", " and ": ", "indent:N" a line for each item and property.
std::string write_json(const JsonValue& value, const std::string& whitespace);

/// Names that a schema speaks of, the required ones first; of patterns a few that match.
std::vector<std::string> schema_names(const JsonValue& schema);

}  // namespace specdec
