#include "experiments/train/text_data.h"

#include <ATen/ATen.h>

#include <random>

#include "core/error.h"
#include "experiments/config/config_file.h"

namespace specdec {
namespace {

constexpr size_t kLargestText = size_t{1} << 30;

/// Pieces of a text that may be tokenised apart: cut after a newline that no newline follows, since
/// no piece of the vocabulary reaches over such a place.
std::vector<std::string_view> paragraphs(std::string_view text) {
  constexpr size_t kEnough = 4096;
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (i - begin >= kEnough && text[i] == '\n' && text[i + 1] != '\n' && text[i + 1] != ' ') {
      parts.push_back(text.substr(begin, i + 1 - begin));
      begin = i + 1;
    }
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (const auto line = text.substr(0, end); !line.empty()) {
      parts.push_back(line);
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

std::vector<Token> encode_all(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<Token> tokens;
  for (const std::string_view part : paragraphs(text)) {
    const bool first = part.data() == text.data();
    const auto encoded =
        tokenizer.encode_after(first ? TextStart::kInput : TextStart::kContinued, part);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  }
  return tokens;
}

}  // namespace

SplitText split_text(const TextSource& source, double held_out) {
  const std::string text = read_text_file(source.file, kLargestText);
  const auto target = static_cast<size_t>(static_cast<double>(text.size()) * (1.0 - held_out));
  const size_t cut = text.find('\n', target);
  if (cut == std::string::npos || cut + 1 >= text.size()) {
    throw Error(fmt::format("{}: too short to hold out {:.1f} % of it; give more text.",
                            source.file.string(), 100.0 * held_out));
  }
  return {text.substr(0, cut + 1), text.substr(cut + 1)};
}

TextData::TextData(const TextPlan& plan, const Tokenizer& tokenizer)
    : seed_(plan.seed),
      batch_size_(plan.batch_size),
      sequence_length_(plan.sequence_length),
      bos_(tokenizer.bos().value_or(2)),
      eos_(tokenizer.eos().value_or(1)) {
  for (const TextSource& source : plan.sources) {
    add(source, tokenizer, plan.held_out);
  }
  if (train_tokens() <= sequence_length_) {
    throw Error(fmt::format("the training text has {} tokens, fewer than one sequence of {}.",
                            train_tokens(), sequence_length_));
  }
}

void TextData::add(const TextSource& source, const Tokenizer& tokenizer, double held_out) {
  const SplitText split = split_text(source, held_out);
  HeldOut& held = held_out_[source.kind];
  if (source.records) {
    for (const std::string_view line : lines(split.train)) {
      const auto tokens = tokenizer.encode(line);
      train_.push_back(bos_);
      train_.insert(train_.end(), tokens.begin(), tokens.end());
      train_.push_back(eos_);
    }
    for (const std::string_view line : lines(split.held_out)) {
      std::vector<Token> window = tokenizer.encode(line);
      held.bytes += static_cast<int64_t>(line.size());
      window.insert(window.begin(), bos_);
      held.windows.push_back(std::move(window));
    }
    return;
  }
  const auto tokens = encode_all(tokenizer, split.train);
  train_.insert(train_.end(), tokens.begin(), tokens.end());
  const auto rest = encode_all(tokenizer, split.held_out);
  const auto length = static_cast<size_t>(sequence_length_);
  for (size_t begin = 0; begin < rest.size(); begin += length) {
    const size_t end = std::min(rest.size(), begin + length);
    std::vector<Token> window = {bos_};
    window.insert(window.end(), rest.begin() + static_cast<std::ptrdiff_t>(begin),
                  rest.begin() + static_cast<std::ptrdiff_t>(end));
    held.windows.push_back(std::move(window));
  }
  held.bytes += static_cast<int64_t>(split.held_out.size());
}

at::Tensor TextData::batch(int64_t step) const {
  // Keyed by the step, so that a resumed training goes on with the same batches.
  return rows(batch_size_, sequence_length_ + 1,
              seed_ * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(step));
}

at::Tensor TextData::rows(int64_t count, int64_t length, uint64_t seed) const {
  std::mt19937_64 generator(seed);
  at::Tensor out = at::empty({count, length}, at::kLong);
  auto* values = out.mutable_data_ptr<int64_t>();
  const auto places = static_cast<uint64_t>(train_tokens() - length + 1);
  for (int64_t row = 0; row < count; ++row) {
    const auto begin = static_cast<size_t>(generator() % places);
    *values++ = bos_;
    for (size_t i = 0; i + 1 < static_cast<size_t>(length); ++i) {
      *values++ = train_[begin + i];
    }
  }
  return out;
}

at::Tensor TextData::frequencies(int64_t vocab_size) const {
  at::Tensor counts = at::zeros({vocab_size}, at::kLong);
  auto* values = counts.mutable_data_ptr<int64_t>();
  for (const Token token : train_) {
    ++values[token];
  }
  return counts;
}

}  // namespace specdec
