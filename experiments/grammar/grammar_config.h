#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/config/config_node.h"
#include "grammar/grammar_source.h"

namespace specdec {

/// Largest number that a grammar's limits can be raised to.
inline constexpr uint64_t kMaxGrammarLimit = 1'000'000'000;

/// The map `grammar:` of a config.
struct GrammarConfig {
  GrammarSource source;
  bool per_prompt = false;  ///< the source's text is missing: each prompt brings its own schema
  /// Tokens that the grammar names: whether a vocabulary has them has not been checked.
  std::vector<std::string> token_names = {};
  /// JSON text of the list of tools that a grammar of tool calls has, or that of a trigger: for the
  /// chat template; "" = none.
  std::string tools = {};
};

/// What a grammar is read for, which decides its default spellings of JSON.
enum class GrammarUse {
  kGenerate,  ///< to write texts: no escapes and no white space without need
  kRecorded,  ///< to check texts that exist: all escapes, `whitespace: any` with 64 characters
};

/// Reads the keys of a grammar by its `type`: json_schema (one of `file`, `schema`, `per_prompt`;
/// `order`, `format`, `whitespace`, `max_whitespace`, `escapes`, `registry`, `max_alternatives`,
/// `max_steps`, `max_states`), regex (`pattern` or `file`), gbnf and lark (`text` or `file`;
/// `start`, `max_unrolled`, `max_symbols`, `max_state_items`; lark with %json: the options of
/// schemas), choice (`choices`), trigger (`triggers`: maps of `begin`, `end` and a `grammar` like
/// this one), tags (`structure` or `file`, and the options of schemas), tool_calls (`style`,
/// `tools`, `tool_choice`, `parallel_tool_calls`, and the options of schemas); of a whole grammar
/// `canonical`, `max_regex_states` and `max_mask_bytes`. Notes all mistakes and unknown keys, and
/// with GrammarUse::kGenerate those that compiling the grammar meets.
GrammarConfig read_grammar(const ConfigNode& node, GrammarUse use = GrammarUse::kGenerate);

/// True for a Lark grammar with JSON Schemas in it, to which their options belong.
bool may_have_schemas(const GrammarSource& source);

/// The kind that a file's ending means: .json, .regex, .gbnf or .lark; nothing for others.
std::optional<GrammarKind> grammar_kind_of_file(const std::filesystem::path& file);

/// A grammar that is a file's text, named after the file. The line break that ends a file belongs
/// to no pattern. Throws ConfigError when the file cannot be read.
GrammarSource read_grammar_file(const std::filesystem::path& file, GrammarKind kind);

}  // namespace specdec
