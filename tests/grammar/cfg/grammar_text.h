#pragma once
#include <string>

#include "grammar/grammar_source.h"

namespace specdec {

/// A grammar whose errors call it g.
inline GrammarSource source_of_text(GrammarKind kind, const std::string& text) {
  GrammarSource source;
  source.kind = kind;
  source.name = "g";
  source.text = text;
  return source;
}

}  // namespace specdec
