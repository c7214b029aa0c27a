#include "core/prompt_states.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

std::string PromptStates::name_of(const ForwardOptions& options) {
  std::string name = options.hidden == Hidden::kAll ? "final" : "";
  for (const int64_t layer : options.capture_layers) {
    name += fmt::format("{}{}", name.empty() ? "" : ",", layer);
  }
  return name;
}

int64_t PromptStates::length() const {
  int64_t length = 0;
  for (const std::vector<Tensor>& piece : pieces_) {
    length += piece.front().size(0);
  }
  return length;
}

void PromptStates::append(const ForwardResult& result, int64_t begin) {
  SPECDEC_CHECK(!name_.empty(), "states of a prefill that asked for none");
  std::vector<Tensor> all = result.captured;
  if (has_final()) {
    all.insert(all.begin(), result.final_hidden);
  }
  std::vector<Tensor> piece;
  for (const Tensor& states : all) {
    SPECDEC_CHECK(states.defined() && begin <= states.size(0), "the states {} from token {} on",
                  name_, begin);
    piece.push_back(states.narrow(0, begin, states.size(0) - begin).clone());
  }
  if (piece.front().size(0) > 0) {
    pieces_.push_back(std::move(piece));
  }
}

PromptStates PromptStates::first(int64_t length) const {
  PromptStates some;
  some.name_ = name_;
  for (size_t i = 0; i < pieces_.size() && length > 0; ++i) {
    const int64_t size = std::min(length, pieces_[i].front().size(0));
    std::vector<Tensor>& piece = some.pieces_.emplace_back();
    for (const Tensor& states : pieces_[i]) {
      piece.push_back(states.narrow(0, 0, size));
    }
    length -= size;
  }
  return some;
}

void PromptStates::prepend_to(ForwardResult& result) const {
  const auto prepend = [this](size_t stream, Tensor& rest) {
    std::vector<Tensor> all;
    all.reserve(pieces_.size() + 1);
    for (const std::vector<Tensor>& piece : pieces_) {
      all.push_back(piece[stream]);
    }
    all.push_back(rest);
    rest = at::cat(all);
  };
  if (has_final()) {
    prepend(0, result.final_hidden);
  }
  for (size_t layer = 0; layer < result.captured.size(); ++layer) {
    prepend(layer + (has_final() ? 1 : 0), result.captured[layer]);
  }
}

MemoryParts PromptStates::parts() const {
  MemoryParts parts;
  for (const std::vector<Tensor>& piece : pieces_) {
    for (const Tensor& states : piece) {  // of which this may be the beginning
      const at::Storage& memory = states.storage();
      parts.push_back({.owner = memory.data(), .bytes = static_cast<int64_t>(memory.nbytes())});
    }
  }
  return parts;
}

}  // namespace specdec
