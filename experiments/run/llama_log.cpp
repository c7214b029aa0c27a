#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.h"
#include "experiments/run/import_counts.h"
#include "experiments/run/imported_text.h"

namespace specdec {
namespace {

/// The value of `key` in a line: the number after "key =".
std::optional<double> number_of(std::string_view line, std::string_view key) {
  const size_t found = line.find(key);
  if (found == std::string_view::npos) {
    return std::nullopt;
  }
  const auto rest = trim_blanks(line.substr(found + key.size()));
  return rest.empty() || rest.front() != '=' ? std::nullopt : leading_number(rest.substr(1));
}

/// One drafter of llama.cpp.
struct LlamaDrafter {
  std::string name;
  Counts counts;
};

/// "(0.805, 0.632)" after `key`.
std::vector<double> rates_of(std::string_view line, std::string_view key) {
  std::vector<double> rates;
  const size_t found = line.find(key);
  const size_t open = line.find('(', found == std::string_view::npos ? line.size() : found);
  const size_t close = line.find(')', open == std::string_view::npos ? line.size() : open);
  if (close == std::string_view::npos) {
    return rates;
  }
  auto list = line.substr(open + 1, close - open - 1);
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (const auto rate = leading_number(list.substr(0, end))) {
      rates.push_back(*rate);
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return rates;
}

void add_rates(Counts& counts, const std::vector<double>& rates) {
  std::vector<int64_t> accepted;
  for (const double rate : rates) {
    accepted.push_back(std::llround(rate * static_cast<double>(counts.drafting_steps)));
  }
  const auto sum = std::accumulate(accepted.begin(), accepted.end(), int64_t{0});
  // Three digits: each position may be off by half of the last one.
  const double slack = static_cast<double>(rates.size()) *
                       (0.0005 * static_cast<double>(counts.drafting_steps) + 0.5);
  if (std::abs(static_cast<double>(sum - counts.accepted)) <= slack) {
    counts.accepted_at = std::move(accepted);
    fill_equal_lengths(counts);
  }
}

/// "statistics draft-eagle3: #calls... #gen drafts = 87, ... #gen tokens = 259, #acc tokens = 167".
LlamaDrafter parse_statistics(std::string_view line, const std::string& name, int64_t number) {
  const auto rest = trim_blanks(line.substr(line.find("statistics ") + 11));
  LlamaDrafter drafter{.name = std::string(trim_blanks(rest.substr(0, rest.find(':')))),
                       .counts = {}};
  Counts& counts = drafter.counts;
  counts.drafting_steps = whole_count(number_of(line, "#gen drafts"), name, number, "#gen drafts");
  counts.drafted = whole_count(number_of(line, "#gen tokens"), name, number, "#gen tokens");
  counts.accepted = whole_count(number_of(line, "#acc tokens"), name, number, "#acc tokens");
  check_accepted(counts, name, number);
  add_rates(counts, rates_of(line, "#acc rate/pos"));
  return drafter;
}

/// "draft acceptance = 0.64 (  167 accepted /   259 generated)" of one request.
void add_request(std::string_view line, const std::string& name, int64_t number, Counts& counts) {
  const auto inside = line.substr(std::min(line.find('('), line.size() - 1) + 1);
  const auto slash = inside.substr(std::min(inside.find('/'), inside.size() - 1) + 1);
  counts.accepted +=
      whole_count(leading_number(inside), name, number, "the number of accepted tokens");
  counts.drafted +=
      whole_count(leading_number(slash), name, number, "the number of generated tokens");
  check_accepted(counts, name, number);
}

/// "eval time = 2296.72 ms / 256 tokens (...", and the prompt's.
void add_times(std::string_view line, const std::string& name, int64_t number, Counts& counts) {
  const size_t found = line.find("eval time =");
  const auto rest = line.substr(found + 11);
  const auto milliseconds = leading_number(rest);
  const auto count = leading_number(rest.substr(std::min(rest.find('/'), rest.size() - 1) + 1));
  if (!milliseconds || !count) {
    return;
  }
  counts.unsplit_seconds += measured_seconds(*milliseconds / 1e3, name, number);
  const bool prompt = found >= 7 && line.substr(found - 7, 7) == "prompt ";
  if (!prompt) {
    ++counts.generations;
    counts.tokens += whole_count(count, name, number, "the number of tokens");
  }
}

/// "decoded  256 tokens in    5.123 seconds, speed: ..." of the speculative example, whose clock
/// holds drafts and target, and "encoded ..." of its prompt, which begins a run: of several runs in
/// a log the last one counts, as in the lines of its drafts.
void add_example_times(std::string_view line, const std::string& name, int64_t number,
                       Counts& counts) {
  const bool decoded = line.find("decoded ") != std::string_view::npos;
  const auto rest = line.substr(line.find("coded ") + 6);
  const size_t found = rest.find("tokens in");
  const auto count = leading_number(rest);
  const auto seconds =
      found == std::string_view::npos ? std::nullopt : leading_number(rest.substr(found + 9));
  if (!count || !seconds) {
    return;
  }
  const double spent = measured_seconds(*seconds, name, number);
  counts.unsplit_seconds = decoded ? counts.unsplit_seconds + spent : spent;
  if (decoded) {
    counts.generations = 1;
    counts.tokens = whole_count(count, name, number, "the number of tokens");
  }
}

/// The contents of a log.
struct LlamaLog {
  std::vector<LlamaDrafter> drafters;
  Counts requests;  // sums of the requests' own lines
  Counts example;   // of the speculative example
  Counts times;
  /// The example ends with the timings of its draft model's context and of its target's, of which
  /// neither is the time of the generation.
  bool has_contexts = false;
  int64_t request_lines = 0;
  bool has_drafted = false, has_accepted = false;
};

void read_llama_line(std::string_view line, const std::string& name, int64_t number,
                     LlamaLog& log) {
  if (line.find("statistics ") != std::string_view::npos &&
      line.find("#gen tokens") != std::string_view::npos) {
    auto drafter = parse_statistics(line, name, number);
    const auto found =
        std::find_if(log.drafters.begin(), log.drafters.end(),
                     [&](const LlamaDrafter& other) { return other.name == drafter.name; });
    if (found == log.drafters.end()) {
      log.drafters.push_back(std::move(drafter));
    } else {
      *found = std::move(drafter);  // they are sums since the server began
    }
  } else if (line.find("draft acceptance") != std::string_view::npos) {
    add_request(line, name, number, log.requests);
    ++log.request_lines;
  } else if (trim_blanks(line) == "draft:" || trim_blanks(line).ends_with(" draft:")) {
    log.has_contexts = true;
  } else if (line.find("eval time =") != std::string_view::npos) {
    if (!log.has_contexts) {
      add_times(line, name, number, log.times);
    }
  } else if (line.find("coded ") != std::string_view::npos &&
             line.find("tokens in") != std::string_view::npos) {
    add_example_times(line, name, number, log.example);
  } else if (number_of(line, "n_drafted")) {
    log.example.drafted = whole_count(number_of(line, "n_drafted"), name, number, "n_drafted");
    log.has_drafted = true;
  } else if (number_of(line, "n_accept")) {
    log.example.accepted = whole_count(number_of(line, "n_accept"), name, number, "n_accept");
    log.has_accepted = true;
    if (log.has_drafted) {
      check_accepted(log.example, name, number);
    }
  }
}

}  // namespace

std::vector<ImportedRow> parse_llama_log(std::string_view text, const std::string& name) {
  LlamaLog log;
  for_each_line(text, [&](std::string_view line, int64_t number) {
    read_llama_line(line, name, number, log);
  });
  std::vector<ImportedRow> rows;
  for (LlamaDrafter& drafter : log.drafters) {
    rows.push_back({std::move(drafter.name), std::move(drafter.counts)});
  }
  if (rows.empty() && log.request_lines > 0) {
    rows.push_back({"llama.cpp", log.requests});
  }
  if (rows.empty() && log.has_drafted && log.has_accepted) {
    rows.push_back({"llama.cpp", log.example});
  }
  if (rows.empty()) {
    throw Error(
        fmt::format("{}: no line of llama.cpp's speculation: \"statistics ... #gen tokens "
                    "\", \"draft acceptance = ...\", or n_drafted and n_accept",
                    name));
  }
  if (rows.size() == 1) {
    const Counts& times = log.example.tokens > 0 ? log.example : log.times;
    rows[0].counts.generations = times.generations;
    rows[0].counts.tokens = times.tokens;
    rows[0].counts.unsplit_seconds = times.unsplit_seconds;
  }
  return rows;
}

}  // namespace specdec
