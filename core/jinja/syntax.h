#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/jinja/value.h"

namespace specdec {

struct JinjaNamedExpression;

struct JinjaExpression {
  enum class Kind : uint8_t {
    kLiteral,      ///< literal
    kName,         ///< name
    kList,         ///< parts
    kTuple,        ///< parts
    kDict,         ///< parts: key, value, key, value, ...
    kAttribute,    ///< parts[0].name
    kItem,         ///< parts[0][parts[1]]
    kSlice,        ///< parts[0][parts[1]:parts[2]:parts[3]], none where left out
    kCall,         ///< parts[0](parts[1], ..., named)
    kFilter,       ///< parts[0] | name(parts[1], ..., named)
    kTest,         ///< parts[0] is name(parts[1], ..., named)
    kNot,          ///< not parts[0]
    kNegative,     ///< -parts[0]
    kOperator,     ///< parts[0] name parts[1]; name: + - * // % ~
    kCompare,      ///< parts[0] name parts[1], where name is == != < <= > >= in, "not in"
    kAnd,          ///< parts[0] and parts[1]
    kOr,           ///< parts[0] or parts[1]
    kConditional,  ///< parts[0] if parts[1] else parts[2], which may be missing
    kSpread,       ///< *parts[0], among the arguments of a call
    kUnsupported   ///< name says what; refused where it is evaluated
  };
  Kind kind = Kind::kLiteral;
  int64_t line = 0;
  int64_t depth = 1;  ///< of the tree
  std::string name;
  std::vector<JinjaExpression> parts;
  JinjaValue literal = JinjaNone{};
  std::vector<JinjaNamedExpression> named;
};

struct JinjaNamedExpression {
  std::string name;
  JinjaExpression value;
};

struct JinjaStatement {
  enum class Kind : uint8_t {
    kText,      ///< name
    kOutput,    ///< {{ value }}
    kIf,        ///< if value: body, else: otherwise (an elif is an if in there)
    kFor,       ///< for targets in value, if condition: body, else: otherwise
    kSet,       ///< targets = value
    kSetBlock,  ///< targets = what body writes
    kMacro,     ///< name(targets, of which the last have `defaults`): body
    kGroup,     ///< generation: body, with names of its own
    kBreak,
    kContinue
  };
  Kind kind = Kind::kText;
  int64_t line = 0;
  std::string name;
  std::vector<std::string> targets;  ///< names; "a.b" is the attribute of a namespace
  bool unpacks = false;              ///< targets are a tuple
  JinjaExpression value;
  std::vector<JinjaExpression> condition;  ///< one or none
  std::vector<JinjaExpression> defaults;
  std::vector<JinjaStatement> body, otherwise;
};

}  // namespace specdec
