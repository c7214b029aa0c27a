#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema/json_value.h"

namespace specdec {

/// A grammar that a part of a structured text follows, as it is given.
struct TagContent {
  /// "json_schema", "regex", "gbnf", "lark", "choice"; "plain_string": the strings that a schema
  /// describes, without quotes and escapes; or "gemma_values": values as Gemma 4 writes them.
  std::string type;
  JsonValue schema = {};   ///< json_schema, plain_string, gemma_values
  std::string text = {};   ///< regex, gbnf, lark
  std::string start = {};  ///< gbnf, lark: the rule; "" = the usual one
  std::vector<std::string> choices = {};
  std::string whitespace = {};  ///< json_schema: of its texts; "" = as for the whole grammar
};

/// A structured text: free text, tags, and parts that follow grammars (XGrammar calls it a
/// structural tag).
struct TagFormat {
  enum class Kind {
    kText,         ///< `text`
    kToken,        ///< the one token whose name is `text`
    kTokenOrText,  ///< that token where the vocabulary has it, else the text
    kGrammar,      ///< `content`
    kFree,         ///< any text without `excludes`; ends where what follows it begins
    kSequence,     ///< the parts, one after the other
    kOr,           ///< one of the parts
    kTag,          ///< parts: begin, content, end; ends at the first place where `end` may
    kTriggered,    ///< free text with tags in it (the parts)
    kSeparated,    ///< tags (the parts) with `separator` between them, and nothing else
    kRepeat,       ///< parts[0], from `min` to `max` times, with `separator` where there is one
    kMembers,      ///< the parts in their order, those not in `required` or not, with `separator`
  };

  Kind kind = Kind::kText;
  std::string place = {};  ///< for errors
  std::string text = {};
  /// kText, kToken, kTokenOrText: where free text comes before, it ends with this text; else with
  /// this one and the texts after it, once they are whole.
  bool ends_free_text = false;
  std::shared_ptr<const TagContent> content = {};  ///< shared by copies: schemas are large
  std::vector<TagFormat> parts = {};
  std::vector<TagFormat> separator = {};  ///< kSeparated, kMembers: one; kRepeat: one or none
  std::vector<bool> required = {};        ///< kMembers: by part
  std::vector<std::string> excludes = {};
  /// kTriggered: beginnings of tags; none: whole begins. kFree: beginnings of the end, if it has
  /// them as texts.
  std::vector<std::string> triggers = {};
  bool at_least_one = false;      ///< kTriggered, kSeparated
  bool stop_after_first = false;  ///< kTriggered, kSeparated: nothing comes after a tag
  uint64_t min = 0;
  std::optional<uint64_t> max = {};
};

// Parts of formats, for those who put them together.
TagFormat text_format(std::string text);
TagFormat token_format(std::string name);
TagFormat token_or_text_format(std::string name);
TagFormat free_format(std::vector<std::string> excludes = {});
TagFormat schema_format(JsonValue schema, std::string place, std::string whitespace = "");
TagFormat grammar_format(TagContent content);
TagFormat sequence_format(std::vector<TagFormat> parts);
TagFormat or_format(std::vector<TagFormat> parts);
TagFormat optional_format(TagFormat part);

/// The parts in a list, which are not copied as an initializer list's would be.
template <class... Parts>
std::vector<TagFormat> parts_of(Parts... parts) {
  std::vector<TagFormat> list;
  list.reserve(sizeof...(parts));
  (list.push_back(std::move(parts)), ...);
  return list;
}

/// Reads a format as docs/grammar.md describes it, which is XGrammar's structural tag with a few
/// more types. Throws GrammarError with the JSON pointer of what is wrong.
TagFormat parse_tag_format(const JsonValue& value);

}  // namespace specdec
