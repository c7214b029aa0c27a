#include "grammar/regex/regex_assertions.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

constexpr double kMaxWritten = 50'000;  ///< characters of an expression with assertions

}  // namespace

void mark_lazy(RegexSyntax& syntax) {
  for (RegexSyntax::Node& node : syntax.nodes) {  // children stand before their parents
    node.asserts = node.asserts || node.lazy ||
                   std::ranges::any_of(node.children,
                                       [&](uint32_t child) { return syntax.nodes[child].asserts; });
  }
}

void check_size(const RegexSyntax& syntax) {
  std::vector<double> sizes;
  for (const RegexSyntax::Node& node : syntax.nodes) {  // children stand before their parents
    double size = node.kind == RegexSyntax::Kind::kPoint ? 1 : 0;
    for (const uint32_t child : node.children) {
      size += sizes[child];
    }
    if (node.kind == RegexSyntax::Kind::kRepeat) {
      size *= static_cast<double>(node.max == RegexSyntax::kUnbounded ? node.min + 1 : node.max);
    }
    sizes.push_back(size);
  }
  const RegexSyntax::Node& root = syntax.nodes[syntax.root];
  if (root.asserts && sizes[syntax.root] > kMaxWritten) {
    syntax.fail(root.position,
                fmt::format("an expression with lazy quantifiers or assertions is longer than {} "
                            "characters with its counts written out; use smaller counts",
                            kMaxWritten));
  }
}

const RegexSyntax::Node* find_assertion(const RegexSyntax& syntax, bool behind) {
  using enum RegexSyntax::Kind;
  const RegexSyntax::Node* found = nullptr;
  for (const RegexSyntax::Node& node : syntax.nodes) {
    const bool fits = node.kind == kBoundary || node.kind == (behind ? kStart : kEnd) ||
                      (node.kind == kLook && node.behind == behind);
    const bool better = found == nullptr || (behind ? node.position < found->position
                                                    : node.position > found->position);
    found = fits && better ? &node : found;
  }
  return found;
}

bool is_tempered(const RegexSyntax& syntax, const RegexSyntax::Node& node) {
  using enum RegexSyntax::Kind;
  const RegexSyntax::Node& body = syntax.nodes[node.children[0]];
  if (body.kind != kConcat || body.children.size() != 2) {
    return false;
  }
  const RegexSyntax::Node& look = syntax.nodes[body.children[0]];
  const RegexSyntax::Node& point = syntax.nodes[body.children[1]];
  return look.kind == kLook && !look.behind && point.kind == kPoint &&
         !syntax.nodes[look.children[0]].asserts;
}

void refuse_repeated(const RegexSyntax& syntax, const RegexSyntax::Node& node, bool is_terminal) {
  const bool finds_end = is_terminal && is_tempered(syntax, node);
  syntax.fail(node.position,
              finds_end ? "a look-ahead before each character is not supported where more follows; "
                          "to read up to an end, write '.*?' before it, with the flag s where line "
                          "ends may come too"
                        : "assertions in a group that is repeated are not supported; move the "
                          "anchor, word boundary, look-around or lazy quantifier out of the group");
}

}  // namespace specdec
