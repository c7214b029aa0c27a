#include "grammar/regex/regex_parser.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/regex/regex_assertions.h"
#include "grammar/regex/regex_languages.h"
#include "grammar/regex/regex_syntax.h"
#include "grammar/regex/terminal_mark.h"

namespace specdec {
namespace {

using SyntaxKind = RegexSyntax::Kind;
using SyntaxNode = RegexSyntax::Node;

constexpr uint64_t kMaxUnrolled = 64;   ///< rounds of a group with assertions in it
constexpr uint64_t kMaxSteps = 20'000;  ///< within such rounds, in each context
constexpr size_t kMaxContexts = 200;

/// Turns syntax into a regular language, from its end to its beginning: what a part matches depends
/// on what may follow it (its continuation), so that assertions are intersections with that. What
/// assertions see to the left is the context: the text's start, or the class of the last character.
class Translator {
 public:
  Translator(RegexStore& store, const RegexSyntax& syntax) : store_(store), syntax_(syntax) {
    blocks_.push_back(CodePoints::all());
    for (const SyntaxNode& node : syntax.nodes) {
      collect_contexts(node);
    }
  }

  RegexId translate(bool search) {
    const Rest end(contexts(), search ? RegexStore::kAll : RegexStore::kEmpty);
    const Rest whole = before(syntax_.root, end);
    return search ? after(RegexStore::kAll, whole)[0] : whole[0];
  }

  /// The language within a longer text, with lazy quantifiers as such. Fails where it depends on
  /// that text.
  RegexId translate_terminal() {
    terminal_ = true;
    const Rest alone = before(syntax_.root, Rest(contexts(), RegexStore::kEmpty));
    for (const RegexId other : alone) {
      if (!are_equal(store_, alone[0], other)) {
        fail_at_edge(true);
      }
    }
    if (find_assertion(syntax_, false) == nullptr) {
      return alone[0];
    }
    marks_end_ = true;
    const Rest end(contexts(), marked(store_, RegexStore::kEmpty));
    if (!are_equal(store_, before(syntax_.root, end)[0], marked(store_, alone[0]))) {
      fail_at_edge(false);
    }
    return alone[0];
  }

 private:
  /// The language of what is left of the text, in each context: [0] at the start of the text, [1+i]
  /// after a character of blocks_[i].
  using Rest = std::vector<RegexId>;

  size_t contexts() const { return needs_context_ ? 1 + blocks_.size() : 1; }

  void collect_contexts(const SyntaxNode& node) {
    if (node.kind == SyntaxKind::kStart || node.kind == SyntaxKind::kBoundary) {
      needs_context_ = true;
    }
    if (node.kind == SyntaxKind::kBoundary) {
      split(syntax_.classes[node.points]);
    }
    if (node.kind == SyntaxKind::kLook && node.behind) {
      needs_context_ = true;
      for (const uint32_t option : options(node.children[0])) {
        const SyntaxNode& seen = syntax_.nodes[option];
        if (seen.kind == SyntaxKind::kPoint) {
          split(syntax_.classes[seen.points]);
        } else if (seen.kind != SyntaxKind::kStart) {
          syntax_.fail(node.position,
                       "a look-behind is not supported but for one character or '^'; rewrite the "
                       "pattern without it");
        }
      }
    }
  }

  void split(const CodePoints& by) {
    split_blocks(blocks_, by);
    if (blocks_.size() > kMaxContexts) {
      syntax_.fail(0, "too many look-behinds are not supported; use fewer");
    }
  }

  std::vector<uint32_t> options(uint32_t body) const {
    const SyntaxNode& node = syntax_.nodes[body];
    return node.kind == SyntaxKind::kOr ? node.children : std::vector{body};
  }

  /// The language of a part without assertions but '$', which never holds here.
  RegexId language(uint32_t index) {
    const SyntaxNode& node = syntax_.nodes[index];
    if (node.kind == SyntaxKind::kEnd) {
      return RegexStore::kNothing;
    }
    if (node.kind == SyntaxKind::kPoint) {
      return point(node);
    }
    std::vector<RegexId> parts;
    for (const uint32_t child : node.children) {
      parts.push_back(language(child));
    }
    if (node.kind == SyntaxKind::kOr) {
      return store_.any_of(parts);
    }
    if (node.kind == SyntaxKind::kRepeat) {
      return store_.repeat(parts[0], node.min, maximum(node));
    }
    return store_.concat(parts);
  }

  static std::optional<uint64_t> maximum(const SyntaxNode& node) {
    return node.max == RegexSyntax::kUnbounded ? std::nullopt : std::optional(node.max);
  }

  bool is_lazy(const SyntaxNode& node) const { return terminal_ && node.lazy; }

  [[noreturn]] void fail_at_edge(bool behind) const {
    const SyntaxNode* node = find_assertion(syntax_, behind);
    syntax_.fail(node == nullptr ? 0 : node->position,
                 fmt::format("this anchor, word boundary or look-around depends on the text {} the "
                             "terminal, which is not supported; leave it out, or move that text "
                             "into the same expression",
                             behind ? "before" : "after"));
  }

  /// One character of a class. Look-ahead passes over the mark.
  RegexId point(const SyntaxNode& node) {
    const CodePoints& points = syntax_.classes[node.points];
    if (!marks_end_) {
      return store_.one_of(points);
    }
    const RegexId one = store_.one_of(without_mark(points));
    return looking_ > 0 ? store_.concat(maybe_mark(store_), one) : one;
  }

  static bool uniform(const Rest& rest) {
    return std::ranges::all_of(rest, [&](RegexId regex) { return regex == rest[0]; });
  }

  /// What `index` and then `rest` match.
  Rest before(uint32_t index, const Rest& rest) {
    const SyntaxNode& node = syntax_.nodes[index];
    Interruption::check();
    steps_ += unrolling_ > 0 ? rest.size() : 0;
    if (steps_ > kMaxSteps) {
      syntax_.fail(node.position, "repeated groups with assertions in them are too large");
    }
    if (!node.asserts && uniform(rest)) {
      return Rest(rest.size(), store_.concat(language(index), rest[0]));
    }
    switch (node.kind) {
      case SyntaxKind::kPoint:
        return after(language(index), rest);
      case SyntaxKind::kConcat:
        return before_sequence(node, rest);
      case SyntaxKind::kOr:
        return before_alternatives(node, rest);
      case SyntaxKind::kRepeat:
        if (is_lazy(node) && looking_ == 0 && node.min != node.max) {
          return before_lazy(node, rest);
        }
        return syntax_.nodes[node.children[0]].asserts ? before_unrolled(node, rest)
                                                       : after(language(index), rest);
      default:
        return before_assertion(node, rest);
    }
  }

  Rest before_sequence(const SyntaxNode& node, Rest rest) {
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
      rest = before(*child, rest);
    }
    return rest;
  }

  Rest before_alternatives(const SyntaxNode& node, const Rest& rest) {
    std::vector<std::vector<RegexId>> parts(rest.size());
    for (const uint32_t child : node.children) {
      const Rest one = before(child, rest);
      for (size_t i = 0; i < rest.size(); ++i) {
        parts[i].push_back(one[i]);
      }
    }
    Rest all;
    for (const auto& part : parts) {
      all.push_back(store_.any_of(part));
    }
    return all;
  }

  /// `language` and then `rest`: by the last character that the language's texts end with, or in
  /// the context before it where they are empty.
  Rest after(RegexId language, const Rest& rest) {
    if (uniform(rest)) {
      return Rest(rest.size(), store_.concat(language, rest[0]));
    }
    std::vector<RegexId> parts;
    const bool one_rest = uniform(Rest(rest.begin() + 1, rest.end()));
    if (one_rest) {
      const RegexId any = store_.one_of(CodePoints::all());
      const RegexId not_empty = store_.all_of(language, store_.repeat(any, 1, std::nullopt));
      parts.push_back(store_.concat(not_empty, rest[1]));
    }
    for (size_t i = 0; i < blocks_.size() && !one_rest; ++i) {
      const RegexId ending = store_.concat(RegexStore::kAll, store_.one_of(blocks_[i]));
      const RegexId part = point_or_all_of(language, blocks_[i], ending);
      parts.push_back(store_.concat(part, rest[1 + i]));
    }
    const RegexId not_empty = store_.any_of(parts);
    Rest all(rest.size(), not_empty);
    for (size_t i = 0; i < rest.size() && store_.matches_empty(language); ++i) {
      all[i] = store_.any_of(not_empty, rest[i]);
    }
    return all;
  }

  /// Intersections of classes are classes; others stay intersections.
  RegexId point_or_all_of(RegexId language, const CodePoints& block, RegexId ending) {
    const RegexId common = store_.all_of(language, store_.one_of(block));
    const RegexId any = store_.one_of(CodePoints::all());
    const bool is_point = store_.all_of(language, any) == language;
    return is_point ? common : store_.all_of(language, ending);
  }

  Rest before_assertion(const SyntaxNode& node, Rest rest) {
    for (size_t i = 0; i < rest.size(); ++i) {
      rest[i] = store_.all_of(condition(node, i), rest[i]);
    }
    return rest;
  }

  /// The language of the rests for which an assertion holds in a context.
  RegexId condition(const SyntaxNode& node, size_t context) {
    const auto when = [](bool holds) { return holds ? RegexStore::kAll : RegexStore::kNothing; };
    if (node.kind == SyntaxKind::kStart) {
      return when(context == 0);
    }
    if (node.kind == SyntaxKind::kEnd) {
      return marks_end_ ? maybe_mark(store_) : RegexStore::kEmpty;
    }
    if (node.kind == SyntaxKind::kBoundary) {
      const CodePoints& words = syntax_.classes[node.points];
      const RegexId word = store_.concat(store_.one_of(words), RegexStore::kAll);
      const RegexId word_next = marks_end_ ? store_.concat(maybe_mark(store_), word) : word;
      const bool wants_word = ends_in(context, words) == node.negative;
      return wants_word ? word_next : store_.complement(word_next);
    }
    if (node.behind) {
      return when(sees_behind(node, context) != node.negative);
    }
    ++looking_;
    const Rest body = before(node.children[0], Rest(contexts(), RegexStore::kAll));
    --looking_;
    return node.negative ? store_.complement(body[context]) : body[context];
  }

  bool ends_in(size_t context, const CodePoints& points) const {
    return context > 0 && points.contains(blocks_[context - 1].ranges()[0].first);
  }

  bool sees_behind(const SyntaxNode& node, size_t context) const {
    return std::ranges::any_of(options(node.children[0]), [&](uint32_t option) {
      const SyntaxNode& seen = syntax_.nodes[option];
      return seen.kind == SyntaxKind::kStart ? context == 0
                                             : ends_in(context, syntax_.classes[seen.points]);
    });
  }

  /// A quantifier of as few rounds as possible: none of them may begin where `rest` could.
  Rest before_lazy(const SyntaxNode& node, const Rest& rest) {
    if (!syntax_.nodes[node.children[0]].asserts && uniform(rest)) {
      const auto all = marks_end_ ? marked_lazy(node, rest[0]) : plain_lazy(node, rest[0]);
      if (all) {
        return Rest(rest.size(), *all);
      }
    }
    syntax_.fail(node.position,
                 "a lazy quantifier is not supported here, as its end depends on more than the "
                 "next few characters; write what it may match, as in [^\"]* for .*?");
  }

  std::optional<RegexId> plain_lazy(const SyntaxNode& node, RegexId rest) {
    const RegexId round = language(node.children[0]);
    const auto all = lazy_repeat(store_, round, {node.min, maximum(node)}, rest);
    auto& known = lazy_.try_emplace(&node, rest, all.value_or(RegexStore::kNothing)).first->second;
    if (known.first != rest) {  // in another round of a group
      known = {RegexStore::kNothing, RegexStore::kNothing};
    }
    return all;
  }

  /// The mark behind the rest moves no lazy quantifier's end.
  std::optional<RegexId> marked_lazy(const SyntaxNode& node, RegexId rest) {
    const auto [plain_rest, plain_all] = lazy_.at(&node);
    const bool same = are_equal(store_, rest, marked(store_, plain_rest));
    return same ? std::optional(marked(store_, plain_all)) : std::nullopt;
  }

  /// A repeated group with assertions in it: round by round, from the last.
  Rest before_unrolled(const SyntaxNode& node, const Rest& rest) {
    if (is_tempered(syntax_, node) && uniform(rest) && rest[0] == RegexStore::kEmpty) {
      return before_tempered(node, rest);
    }
    if (node.max == RegexSyntax::kUnbounded && node.min <= 1 && uniform(rest) && !marks_end_ &&
        only_ends(node.children[0])) {
      return before_ended(node, rest);
    }
    if (node.max > kMaxUnrolled) {
      refuse_repeated(syntax_, node, terminal_);
    }
    ++unrolling_;
    Rest all = rest;
    for (uint64_t round = node.max; round > 0; --round) {
      all = before(node.children[0], all);
      for (size_t i = 0; i < all.size() && round > node.min; ++i) {
        all[i] = store_.any_of(all[i], rest[i]);
      }
    }
    --unrolling_;
    return all;
  }

  /// True when '$' is the only assertion in a part.
  bool only_ends(uint32_t index) const {
    const SyntaxNode& node = syntax_.nodes[index];
    const bool other = node.asserts && node.children.empty() && node.kind != SyntaxKind::kEnd;
    return !other && node.kind != SyntaxKind::kLook && !is_lazy(node) &&
           std::ranges::all_of(node.children, [&](uint32_t child) { return only_ends(child); });
  }

  /// A quantifier of any number of rounds, of which the last may use '$' if nothing has to follow.
  Rest before_ended(const SyntaxNode& node, const Rest& rest) {
    const RegexId round = language(node.children[0]);
    RegexId all = store_.concat(store_.repeat(round, node.min, std::nullopt), rest[0]);
    if (store_.matches_empty(rest[0])) {
      const Rest end(rest.size(), RegexStore::kEmpty);
      const RegexId last = before(node.children[0], end)[0];
      all = store_.any_of(all, store_.concat(store_.repeat(round, 0, std::nullopt), last));
    }
    return Rest(rest.size(), all);
  }

  /// A tempered group up to the end of the text: C* without a place where X matches.
  Rest before_tempered(const SyntaxNode& node, const Rest& rest) {
    const SyntaxNode& body = syntax_.nodes[node.children[0]];
    const SyntaxNode& look = syntax_.nodes[body.children[0]];
    const RegexId points = store_.repeat(language(body.children[1]), node.min, maximum(node));
    return Rest(rest.size(), tempered(store_, points, language(look.children[0]), look.negative));
  }

  RegexStore& store_;
  const RegexSyntax& syntax_;
  bool needs_context_ = false;
  std::vector<CodePoints> blocks_;
  bool terminal_ = false;
  bool marks_end_ = false;  ///< a mark stands where the terminal ends
  int looking_ = 0;         ///< look-aheads around
  std::map<const SyntaxNode*, std::pair<RegexId, RegexId>> lazy_;  ///< rest, and with the node
  int unrolling_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace

RegexId parse_regex(RegexStore& store, std::string_view pattern, bool search,
                    RegexDialect dialect) {
  const RegexSyntax syntax = RegexSyntaxParser(pattern, dialect).parse();
  return Translator(store, syntax).translate(search);
}

RegexId parse_terminal(RegexStore& store, std::string_view pattern) {
  RegexSyntax syntax = RegexSyntaxParser(pattern, RegexDialect::kPython).parse();
  mark_lazy(syntax);
  check_size(syntax);
  return Translator(store, syntax).translate_terminal();
}

bool depends_on_neighbours(std::string_view pattern) {
  RegexSyntax syntax = RegexSyntaxParser(pattern, RegexDialect::kPython).parse();
  mark_lazy(syntax);
  return syntax.nodes[syntax.root].asserts;
}

}  // namespace specdec
