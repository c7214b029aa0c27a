#pragma once
#include <cstdint>
#include <string_view>

#include "grammar/regex/regex.h"

namespace specdec {

/// Whose regular expressions they are. Both take flags in groups ((?i:...), i, m and s) and
/// \p{...}.
enum class RegexDialect : uint8_t {
  /// ECMA-262 with the flag `u` (what JSON Schema's `pattern` means); also \A, \z, (?P<name>...)
  /// and more escapes, as in Rust. (?i) applies from there on.
  kEcma,
  /// kEcma without what has another meaning elsewhere or none: \<, \>, \` and \' outside of
  /// classes, {,n}, and groups' names that are taken or no identifiers.
  kEcmaStrict,
  /// Python's `re` for str: \w, \d, \s and \b by Unicode (by ASCII with the flag `a`), '$' also
  /// before a last line end, \Z, (?#comments) and the flag `x`.
  kPython,
};

/// Reads a regular expression. With `search` the language is that of all texts that contain a
/// match (JSON Schema), else of texts that match as a whole. Anchors, word boundaries and
/// look-around are taken exactly where the language can be expressed, else refused; back-references
/// always are. Throws GrammarError saying what and at which character.
RegexId parse_regex(RegexStore& store, std::string_view pattern, bool search,
                    RegexDialect dialect = RegexDialect::kEcma);

/// Reads an expression in Python's syntax that is a part of a longer text: a terminal. A lazy
/// quantifier ends where what follows it first matches. Refuses an anchor, word boundary or
/// look-around that depends on what stands before or after the terminal, and a lazy quantifier
/// whose end is no regular expression of few words.
RegexId parse_terminal(RegexStore& store, std::string_view pattern);

/// True when there are assertions or lazy quantifiers in an expression of Python's syntax.
bool depends_on_neighbours(std::string_view pattern);

}  // namespace specdec
