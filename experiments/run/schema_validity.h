#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "experiments/metrics/generation_record.h"
#include "experiments/run/prompts.h"

namespace specdec {

/// Checks answers against the JSON Schemas of their prompts, with a schema's automaton each, so
/// that no vocabulary and no mask is needed. Every spelling of JSON is allowed, whatever a grammar
/// of the run allows.
class SchemaValidity {
 public:
  SchemaValidity();
  ~SchemaValidity();

  /// Whether a whole text is a value that satisfies the schema, white space around it left out.
  /// None where the schema is not supported, or reading the text reaches one of its limits.
  std::optional<bool> satisfies(const std::string& schema, std::string_view text);
  /// Fills `is_valid` of a record whose prompt has a schema: of its answer, without the thinking
  /// before it and the token that ends it.
  void check(const Prompt& prompt, const Tokenizer* tokenizer, GenerationRecord& record);

 private:
  struct Entry;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

}  // namespace specdec
