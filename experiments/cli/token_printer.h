#pragma once
#include <iosfwd>
#include <optional>

#include "core/tokenizers/tokenizer.h"
#include "core/types.h"

namespace specdec {

/// Writes tokens as they come: as text, or as ids where there is no tokenizer.
class TokenPrinter {
 public:
  /// What is printed goes on after the tokens `before`.
  TokenPrinter(std::ostream& out, const Tokenizer* tokenizer, TokenSpan before);
  /// Throws Error where the output cannot be written.
  void print(TokenSpan tokens);
  /// Ends a line that an error cuts off: its message begins on a new one.
  void break_line();
  void finish();

 private:
  std::ostream& out_;
  std::optional<StreamingDecoder> decoder_;
  bool first_ = true;
};

}  // namespace specdec
