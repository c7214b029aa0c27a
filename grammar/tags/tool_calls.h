#pragma once
#include <functional>
#include <string>
#include <vector>

#include "grammar/schema/json_value.h"
#include "grammar/tags/tag_format.h"

namespace specdec {

/// How a model writes calls of tools. One call is
///     begin NAME arguments ARGUMENTS end
/// and those of one answer are
///     section_begin CALL separator CALL ... section_end
struct ToolCallStyle {
  enum class Notation {
    kJson,
    kGemma,  ///< {city:<|"|>Oslo<|"|>,days:3}, names sorted
    kXml,    ///< a <parameter=NAME> for each argument; strings as they are
  };

  std::string name;
  std::string models;  ///< that write so, for people
  /// Names in the texts here that are one token where the vocabulary has it, else text.
  std::vector<std::string> tokens = {};
  std::string begin, arguments, end;
  /// Texts that end a value or a call for those who read it, wherever they stand.
  std::vector<std::string> delimiters = {};
  bool parallel = false;  ///< an answer may have several calls
  std::string separator = {}, section_begin = {}, section_end = {};
  Notation notation = Notation::kJson;
  std::string whitespace = "spaced";  ///< of JSON arguments; see JsonSchemaOptions
  /// What the model thinks before it answers or calls: a begin, any text, the end.
  std::vector<std::string> thought_begins = {};
  std::string thought_end = {};
  bool many_thoughts = false;
  /// Where an answer without calls has a header of its own. Then no text comes before calls.
  std::string answer_begin = {};
};

const std::vector<ToolCallStyle>& tool_call_styles();

/// The text before a call's name; "" for no style.
std::string tool_call_begin(const std::string& style);

/// Splits a text of a style into texts and tokens.
TagFormat spell_of_style(const ToolCallStyle& style, const std::string& text);

/// Reads {"style", "tools", "tool_choice", "parallel_tool_calls", "whitespace"}, of which tools,
/// tool_choice and parallel_tool_calls are those of OpenAI's API. Throws GrammarError with the JSON
/// pointer of what is wrong.
/// `check`: throws GrammarError for a schema that is none, or that nothing satisfies.
TagFormat parse_tool_calls(const JsonValue& value,
                           const std::function<void(const JsonValue&)>& check = {});

}  // namespace specdec
