#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/forward.h"
#include "core/memory_parts.h"

namespace specdec {

/// Hidden states of a text's first tokens, which heads on a model read: those after the final norm
/// (Hidden::kAll) and after captured layers, as the options of a prefill ask for. They lie in
/// pieces, one a prefill, that texts which begin alike share. Never changed once they are there, so
/// any thread may read copies of this.
class PromptStates {
 public:
  /// States of no tokens, for options that ask for none.
  PromptStates() = default;
  /// States of no tokens yet, for these options.
  explicit PromptStates(const ForwardOptions& options) : name_(name_of(options)) {}

  /// Names the states that a forward's options ask for of all tokens, such as "final,3,7": others
  /// cannot take their place. "" = none.
  static std::string name_of(const ForwardOptions& options);
  const std::string& name() const { return name_; }
  /// Tokens.
  int64_t length() const;

  /// Adds copies of a prefill's states from row `begin` of its results on: those of the tokens that
  /// follow.
  void append(const ForwardResult& result, int64_t begin);
  /// The states of the first `length` tokens at most. Shares memory.
  PromptStates first(int64_t length) const;
  /// Puts the states before those of a result, whose options had this name.
  void prepend_to(ForwardResult& result) const;
  /// Memory that the states keep in use.
  MemoryParts parts() const;

 private:
  bool has_final() const { return name_.starts_with("final"); }

  std::string name_;
  /// For each piece the final states where there are any, then each captured layer's, [n, hidden].
  std::vector<std::vector<Tensor>> pieces_;
};

}  // namespace specdec
