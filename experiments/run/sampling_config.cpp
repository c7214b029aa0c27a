#include "experiments/run/sampling_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "experiments/config/yaml_tree.h"
#include "experiments/run/prompts_config.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

bool is_minus_infinity(std::string_view text) { return text == "-inf" || text == "-.inf"; }

/// The bias that a text says; nullopt for what is neither a number nor -inf.
std::optional<double> read_bias(std::string_view text) {
  if (is_minus_infinity(text)) {
    return -std::numeric_limits<double>::infinity();
  }
  double number = 0.0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number =
      failure == std::errc() && end == text.data() + text.size() && std::isfinite(number);
  return is_number ? std::optional(number) : std::nullopt;
}

/// "sampling.top_p is 0; ..." belongs to its key.
void fail_sampling(const ConfigNode& node, const std::string& message) {
  const std::string prefix = "sampling.";
  const size_t space = message.find(' ');
  if (message.rfind(prefix, 0) == 0 && space != std::string::npos) {
    node.fail(message.substr(prefix.size(), space - prefix.size()), message.substr(space + 1));
  } else {
    node.fail(message);
  }
}

LogitBias read_logit_bias(const ConfigNode& node, const ModelFiles* target) {
  LogitBias all;
  const auto tree = node.raw("logit_bias");
  if (tree == nullptr || tree->kind == YamlTree::Kind::kNull) {
    return all;
  }
  if (tree->kind != YamlTree::Kind::kMap) {
    node.fail("logit_bias", "expected a map of tokens to numbers, such as {17: -2.5}");
    return all;
  }
  for (const YamlTree::Entry& entry : tree->entries) {
    const auto bias = read_bias(entry.value->text);
    if (!bias) {
      node.fail("logit_bias",
                fmt::format("'{}' of token '{}' is no bias: give a number, or -.inf to forbid the "
                            "token",
                            one_line(entry.value->text, 40), one_line(entry.key, 40)));
    } else if (target != nullptr) {
      note_error(node, "logit_bias", [&] {
        require_config(all.emplace(read_token(entry.key, *target), *bias).second,
                       fmt::format("token '{}' has a bias already, by its other name",
                                   one_line(entry.key, 40)));
      });
    }
  }
  return all;
}

}  // namespace

SamplingParams read_sampling(const ConfigNode& node, const ModelFiles* target) {
  SamplingParams sampling;
  sampling.temperature = node.get<double>("temperature", 0.0, {0.0, 1000.0});
  sampling.top_k = node.get<int64_t>("top_k", 0, {0, kMaxTokens});
  sampling.top_p = node.get<double>("top_p", 1.0, {0.0, 1.0});
  sampling.min_p = node.get<double>("min_p", 0.0, {0.0, 1.0});
  sampling.repetition_penalty = node.get<double>("repetition_penalty", 1.0, {0.0, 1000.0});
  sampling.logit_bias = read_logit_bias(node, target);
  try {
    sampling.validate();
  } catch (const ConfigError& error) {
    fail_sampling(node, error.what());
  }
  return sampling;
}

std::vector<std::string> unused_sampling(const SamplingParams& sampling, const std::string& prefix,
                                         char dash) {
  std::vector<std::string> names;
  const std::pair<const char*, bool> all[] = {{"top_k", sampling.top_k != 0},
                                              {"top_p", sampling.top_p != 1.0},
                                              {"min_p", sampling.min_p != 0.0}};
  for (const auto& [name, is_set] : all) {
    if (is_set && sampling.greedy()) {
      names.push_back(prefix + name);
      std::replace(names.back().begin() + std::ssize(prefix), names.back().end(), '_', dash);
    }
  }
  return names;
}

Token read_token(const std::string& text, const ModelFiles& target) {
  const bool is_id = !text.empty() && std::all_of(text.begin(), text.end(),
                                                  [](char c) { return c >= '0' && c <= '9'; });
  if (is_id) {
    Token id = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), id);
    const int64_t vocab = target.config.vocab_size;
    require_config(failure == std::errc() && end == text.data() + text.size() && id < vocab,
                   fmt::format("token {} lies outside the model's vocabulary of {} (0 to {})", text,
                               vocab, vocab - 1));
    return id;
  }
  if (target.tokenizer == nullptr) {
    throw ConfigError(target.no_text(
        fmt::format("{} has no tokenizer: name tokens by their ids", target.folder.string())));
  }
  if (const auto piece = target.tokenizer->find_piece(text)) {
    return *piece;
  }
  const std::vector<Token> tokens = target.tokenizer->encode_after(TextStart::kContinued, text);
  require_config(tokens.size() == 1,
                 fmt::format("'{}' is {} tokens, not one: name a text that is one token, or an id "
                             "(see 'specdec tokenize')",
                             one_line(text, 40), tokens.size()));
  return tokens.front();
}

void add_logit_bias(const std::string& text, const ModelFiles& target, SamplingParams& sampling) {
  const size_t sign = text.rfind('=');
  const auto bias = sign == std::string::npos ? std::nullopt : read_bias(text.substr(sign + 1));
  require_config(
      bias.has_value(),
      fmt::format("'{}' is no TOKEN=NUMBER, such as 17=-2.5 or ' the'=-inf", one_line(text, 40)));
  require_config(
      sampling.logit_bias.emplace(read_token(text.substr(0, sign), target), *bias).second,
      fmt::format("'{}': this token has a bias already", one_line(text, 40)));
}

}  // namespace specdec
