#include "core/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "core/jinja/expression_parser.h"
#include "core/jinja/name_list.h"

namespace specdec {
namespace {

using TokenKind = JinjaToken::Kind;
using StatementKind = JinjaStatement::Kind;

/// Names that a template cannot give: constants, and what loops and macros set.
constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
constexpr std::string_view kNamesOfMacros[] = {"caller", "varargs", "kwargs"};

class JinjaParser {
 public:
  explicit JinjaParser(std::string_view source) : in_(jinja_tokens(source)) {}

  std::vector<JinjaStatement> whole() { return statements({}); }

 private:
  /// Statements up to a tag that begins with one of `ends`, behind whose name it stops.
  std::vector<JinjaStatement> statements(std::initializer_list<std::string_view> ends) {
    const JinjaExpressionParser::Nesting nesting(in_);
    std::vector<JinjaStatement> all;
    while (in_.current().kind != TokenKind::kEndOfTemplate) {
      JinjaStatement one;
      one.line = in_.current().line;
      if (in_.current().kind == TokenKind::kText) {
        one.name = in_.next().text;
      } else if (in_.next().text == "{{") {
        one.kind = StatementKind::kOutput;
        one.value = in_.tuple();
        in_.expect(TokenKind::kEnd, "}}");
      } else {
        const std::string name = in_.expect_name();
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          end_ = name;
          return all;
        }
        statement(name, one);
      }
      all.push_back(std::move(one));
    }
    if (ends.size() > 0) {
      in_.fail(fmt::format("the tag {} is missing.", *(ends.end() - 1)));
    }
    return all;
  }

  void statement(const std::string& name, JinjaStatement& one) {
    if (name == "if") {
      branch(one);
    } else if (name == "for") {
      loop(one);
    } else if (name == "set") {
      assignment(one);
    } else if (name == "macro") {
      macro(one);
    } else if (name == "generation") {
      one.kind = StatementKind::kGroup;
      one.body = block_without_loop({"endgeneration"});
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) {
        in_.fail(fmt::format("the tag {} stands in no loop.", name));
      }
      one.kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
    } else {
      in_.fail(fmt::format("the tag {{% {} %}} is not supported.", shortened(name)));
    }
    in_.expect(TokenKind::kEnd, "%}");
  }

  /// The statements behind a tag, which ends here.
  std::vector<JinjaStatement> block(std::initializer_list<std::string_view> ends) {
    in_.skip_operator(":");
    in_.expect(TokenKind::kEnd, "%}");
    return statements(ends);
  }

  /// A block that break and continue do not leave.
  std::vector<JinjaStatement> block_without_loop(std::initializer_list<std::string_view> ends) {
    const int loops = std::exchange(loops_, 0);
    std::vector<JinjaStatement> all = block(ends);
    loops_ = loops;
    return all;
  }

  void branch(JinjaStatement& one) {
    const JinjaExpressionParser::Nesting nesting(in_);
    one.kind = StatementKind::kIf;
    one.value = in_.tuple(false);
    one.body = block({"elif", "else", "endif"});
    if (end_ == "elif") {
      JinjaStatement next;
      next.line = in_.current().line;
      branch(next);
      one.otherwise.push_back(std::move(next));
    } else if (end_ == "else") {
      one.otherwise = block({"endif"});
    }
  }

  void loop(JinjaStatement& one) {
    one.kind = StatementKind::kFor;
    targets(one, false);
    in_.expect(TokenKind::kName, "in");
    one.value = in_.tuple(false);
    if (in_.skip_name("if")) {
      one.condition.push_back(in_.expression());
    }
    if (in_.is_name("recursive")) {
      in_.fail("recursive loops are not supported.");
    }
    ++loops_;
    one.body = block({"else", "endfor"});
    --loops_;
    if (end_ == "else") {
      one.otherwise = block({"endfor"});
    }
  }

  std::string new_name() {
    std::string name = in_.expect_name();
    if (is_one_of(kConstants, name)) {
      in_.fail(fmt::format("the name {} cannot be set.", name));
    }
    return name;
  }

  std::string new_parameter(const JinjaStatement& macro) {
    std::string name = new_name();
    const auto& known = macro.targets;
    if (is_one_of(kNamesOfMacros, name) ||
        std::find(known.begin(), known.end(), name) != known.end()) {
      in_.fail(fmt::format("the parameter {} comes twice, or is a name of every macro.",
                           shortened(name)));
    }
    return name;
  }

  void targets(JinjaStatement& one, bool attributes) {
    const bool brackets = in_.skip_operator("(");
    do {
      std::string name = new_name();
      if (name == "loop") {
        in_.fail("the name loop cannot be set.");
      }
      if (attributes && in_.skip_operator(".")) {
        name += '.';
        name += in_.expect_name();
      }
      one.targets.push_back(std::move(name));
      one.unpacks = one.unpacks || in_.is(TokenKind::kOperator, ",");
    } while (in_.skip_operator(",") && !(brackets && in_.is(TokenKind::kOperator, ")")));
    if (brackets) {
      in_.expect(TokenKind::kOperator, ")");
    }
  }

  void assignment(JinjaStatement& one) {
    targets(one, true);
    if (in_.skip_operator("=")) {
      one.kind = StatementKind::kSet;
      one.value = in_.tuple();
      return;
    }
    if (in_.is(TokenKind::kOperator, "|")) {
      in_.fail("a filter of a set block is not supported.");
    }
    one.kind = StatementKind::kSetBlock;
    one.body = block_without_loop({"endset"});
  }

  void macro(JinjaStatement& one) {
    one.kind = StatementKind::kMacro;
    one.name = new_name();
    in_.expect(TokenKind::kOperator, "(");
    while (!in_.is(TokenKind::kOperator, ")")) {
      one.targets.push_back(new_parameter(one));
      if (in_.skip_operator("=")) {
        one.defaults.push_back(in_.expression());
      } else if (!one.defaults.empty()) {
        in_.fail("a parameter without a default follows one with a default.");
      }
      if (!in_.skip_operator(",")) {
        break;
      }
    }
    in_.expect(TokenKind::kOperator, ")");
    one.body = block_without_loop({"endmacro"});
  }

  JinjaExpressionParser in_;
  int loops_ = 0;    // that are open, for break and continue
  std::string end_;  // the tag at which statements() stopped
};

}  // namespace

std::vector<JinjaStatement> parse_jinja(std::string_view source) {
  return JinjaParser(source).whole();
}

}  // namespace specdec
