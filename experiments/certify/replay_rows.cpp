#include "experiments/certify/replay_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <utility>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_file.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {
namespace {

/// Most likely tokens that each of the two distributions names.
constexpr int64_t kTop = 8;
/// Entries of a row in a file at most.
constexpr size_t kMaxEntries = 1024;

/// What chosen tokens are preferred by: each half as likely as the one before.
TokenProbs preferences(const Draft& draft, const std::vector<int64_t>& children,
                       int64_t vocab_size) {
  std::vector<double> row(static_cast<size_t>(vocab_size));
  double weight = 1.0;
  for (const int64_t child : children) {
    row[static_cast<size_t>(draft.tokens[static_cast<size_t>(child)])] = weight;
    weight /= 2.0;
  }
  return TokenProbs(std::move(row)).normalised();
}

/// The most likely tokens of both, by the sum of their probabilities.
std::vector<Token> likely_tokens(const TokenProbs& p, const TokenProbs& q) {
  std::vector<Token> tokens;
  for (const auto* probs : {&p, &q}) {
    for (const auto& candidate : probs->top(kTop)) {
      if (std::find(tokens.begin(), tokens.end(), candidate.token) == tokens.end()) {
        tokens.push_back(candidate.token);
      }
    }
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](Token a, Token b) { return p[a] + q[a] > p[b] + q[b]; });
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(kMaxRowTokens)));
  return tokens;
}

std::vector<double> lump(const TokenProbs& probs, const std::vector<Token>& tokens) {
  std::vector<double> lumped;
  for (const Token token : tokens) {
    lumped.push_back(probs[token]);
  }
  const double named = std::accumulate(lumped.begin(), lumped.end(), 0.0);
  const double rest = probs.sum() - named;
  lumped.push_back(rest > 1e-9 ? rest : 0.0);  // less is rounding
  return lumped;
}

std::string digits(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) {
    texts.push_back(fmt::format("{:.6g}", value));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

/// What is wrong with a distribution that was read; "" when nothing is.
std::string mistake_of(const std::vector<double>& probs) {
  double sum = 0.0;
  for (const double value : probs) {
    if (value < 0.0) {
      return "holds a negative probability";
    }
    sum += value;
  }
  return std::abs(sum - 1.0) > 1e-3
             ? fmt::format("holds probabilities that sum to {:g}, not to 1", sum)
             : "";
}

ReplayRow read_row(const RecordKeys& keys) {
  ReplayRow row{keys.text("point"), keys.text("strategy"), keys.flag("drawn"), keys.numbers("p"),
                keys.numbers("q")};
  if (row.p.size() != row.q.size() || row.p.empty() || row.p.size() > kMaxEntries) {
    keys.fail("p", fmt::format("must have as many entries as 'q', 1 to {}", kMaxEntries));
  }
  for (const auto& [key, probs] : {std::pair("p", &row.p), {"q", &row.q}}) {
    if (const auto mistake = mistake_of(*probs); !mistake.empty()) {
      keys.fail(key, mistake);
    }
  }
  return row;
}

}  // namespace

ReplayRow lump_row(const Draft& draft, TargetProbs& target, int64_t node) {
  const TokenProbs& p = target.after(node);
  const TokenProbs* drawn_from = draft.drawn_from(node);
  const TokenProbs q = drawn_from != nullptr
                           ? drawn_from->normalised()
                           : preferences(draft, draft.children(node), p.vocab_size());
  const auto tokens = likely_tokens(p, q);
  return {.point = "",
          .strategy = "",
          .drawn = drawn_from != nullptr,
          .p = lump(p, tokens),
          .q = lump(q, tokens)};
}

ReplayRow lump_row(const ReplayRow& row, int64_t entries) {
  ReplayRow lumped = row;
  const auto size = static_cast<size_t>(entries);
  for (auto* probs : {&lumped.p, &lumped.q}) {
    if (probs->size() > size) {
      const double rest = std::accumulate(probs->begin() + entries - 1, probs->end(), 0.0);
      probs->resize(size);
      probs->back() = rest;
    }
  }
  return lumped;
}

void write_rows_json(std::ostream& out, const std::vector<ReplayRow>& rows) {
  out << "{\"rows\": [\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    out << fmt::format(
        "{{\"point\": {}, \"strategy\": {}, \"drawn\": {}, \"p\": {}, \"q\": {}}}{}\n",
        json_text(nlohmann::json(row.point)), json_text(nlohmann::json(row.strategy)), row.drawn,
        digits(row.p), digits(row.q), i + 1 < rows.size() ? "," : "");
  }
  out << "]}\n";
}

std::vector<ReplayRow> read_rows_json(const std::filesystem::path& file) {
  std::vector<ReplayRow> rows;
  const auto advised = [&](const std::exception& error) {
    return ConfigError(
        fmt::format("{}: {}; `specdec certify --config FILE --rows OUT.json` writes "
                    "such a file",
                    file.string(), error.what()));
  };
  try {
    const auto json = parse_strict_json(read_text_file(file), "its JSON");
    for (const RecordKeys& row : RecordKeys(json).objects("rows")) {
      rows.push_back(read_row(row));
    }
  } catch (const Error& error) {
    throw advised(error);
  }
  if (rows.empty()) {
    throw ConfigError(file.string() + ": has no rows; write the file anew with --rows");
  }
  return rows;
}

}  // namespace specdec
