#pragma once
#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "core/tokenizers/tokenizer.h"
#include "grammar/grammar_source.h"
#include "grammar/grammar_vocabulary.h"

namespace specdec {

/// A file and how the texts of its schemas are written.
struct SchemaArguments {
  std::string file, tokenizer, order, format = "assert", whitespace = "compact";
  std::string escapes = "minimal", registry;
  uint32_t max_whitespace = 0;
  uint32_t usual_max_whitespace = 0;  ///< without an option; see JsonSchemaOptions
  GrammarLimits limits;

  JsonSchemaOptions schema_options() const;  ///< reads the registry
};

/// A grammar of any kind, as sample and explain take it.
struct GrammarArguments : SchemaArguments {
  const CLI::App* command = nullptr;  ///< says which options were given
  std::string type, pattern, start;
};

/// --tokenizer, --order, --format, --whitespace, --max-whitespace, --escapes, --registry, and the
/// limits.
void add_schema_options(CLI::App& command, SchemaArguments& arguments, std::string order);

/// The file or --pattern, --type, --start, and the options of schemas.
void add_grammar_options(CLI::App& command, GrammarArguments& arguments);

/// Reads what the arguments name, by its ending or its type. Throws ConfigError, also for options
/// that have no effect on that kind of grammar.
GrammarSource read_grammar_source(const GrammarArguments& arguments);

/// The tokenizer's vocabulary as grammars need it, from the user's cache where it is kept.
std::shared_ptr<GrammarVocabulary> prepare_vocabulary(const Tokenizer& tokenizer);

}  // namespace specdec
