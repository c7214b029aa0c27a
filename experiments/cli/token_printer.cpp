#include "experiments/cli/token_printer.h"

#include <fmt/format.h>

#include <ostream>

#include "core/error.h"

namespace specdec {

TokenPrinter::TokenPrinter(std::ostream& out, const Tokenizer* tokenizer, TokenSpan before)
    : out_(out) {
  if (tokenizer == nullptr) {
    return;
  }
  decoder_.emplace(*tokenizer);
  for (const Token token : before) {
    (void)decoder_->push(token);
  }
}

void TokenPrinter::print(TokenSpan tokens) {
  for (const Token token : tokens) {
    out_ << (decoder_ ? decoder_->push(token) : fmt::format("{}{}", first_ ? "" : ",", token));
    first_ = false;
  }
  out_.flush();
  if (!out_) {
    throw Error("standard output cannot be written (closed, or the disk is full)");
  }
}

void TokenPrinter::break_line() {
  if (!first_) {
    out_ << "\n" << std::flush;
  }
}

void TokenPrinter::finish() { out_ << (decoder_ ? decoder_->finish() : "") << "\n"; }

}  // namespace specdec
