#include "experiments/run/import_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/metrics/answers.h"
#include "experiments/run/record_order.h"

namespace specdec {
namespace {

constexpr const char* kVllmPrefix = "vllm:spec_decode_num_";
constexpr double kMaxCount = 1e15;

/// Calls `read` with each line and its number.
template <class Read>
void for_each_line(std::string_view text, const Read& read) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    read(text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

[[noreturn]] void fail(const std::string& name, int64_t line, const std::string& message) {
  throw Error(fmt::format("{}:{}: {}", name, line, message));
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// The number that a text begins with, after blanks.
std::optional<double> leading_number(std::string_view text) {
  text = trim(text);
  double value = 0.0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

int64_t whole(std::optional<double> value, const std::string& name, int64_t line,
              std::string_view what) {
  if (!value || *value < 0.0 || *value > kMaxCount || *value != std::floor(*value)) {
    fail(name, line, fmt::format("{} is not a count: a whole number of at least 0", what));
  }
  return static_cast<int64_t>(*value);
}

/// The value of `key` in a line: the number after "key =".
std::optional<double> number_of(std::string_view line, std::string_view key) {
  const size_t found = line.find(key);
  if (found == std::string_view::npos) {
    return std::nullopt;
  }
  const auto rest = trim(line.substr(found + key.size()));
  return rest.empty() || rest.front() != '=' ? std::nullopt : leading_number(rest.substr(1));
}

/// The value of a Prometheus label; "" when there is none.
std::string label_of(std::string_view labels, std::string_view label) {
  const std::string key = std::string(label) + "=\"";
  for (size_t found = labels.find(key); found != std::string_view::npos;
       found = labels.find(key, found + 1)) {
    if (found == 0 || labels[found - 1] == ',' || labels[found - 1] == ' ') {
      const size_t begin = found + key.size();
      return std::string(labels.substr(begin, labels.find('"', begin) - begin));
    }
  }
  return "";
}

struct VllmCounters {
  std::map<std::string, int64_t> sums;  // by the counter's name without prefix and "_total"
  std::map<int64_t, int64_t> by_position;
};

int64_t required(const VllmCounters& counters, const std::string& counter, const std::string& model,
                 const std::string& name) {
  const auto found = counters.sums.find(counter);
  if (found == counters.sums.end()) {
    throw Error(
        fmt::format("{}: the counter {}{}_total of model '{}' is missing; save the whole "
                    "/metrics page of a server that speculates",
                    name, kVllmPrefix, counter, model));
  }
  return found->second;
}

/// [i]: steps that reached position i, where all drafts were `positions` long.
void fill_equal_lengths(Counts& counts) {
  const auto positions = static_cast<int64_t>(counts.accepted_at.size());
  if (positions == 0 || counts.drafted != counts.drafting_steps * positions) {
    return;
  }
  counts.drafted_at.assign(counts.accepted_at.size(), counts.drafting_steps);
  counts.reached_at = {counts.drafting_steps};
  counts.reached_at.insert(counts.reached_at.end(), counts.accepted_at.begin(),
                           counts.accepted_at.end() - 1);
}

Counts vllm_counts(const VllmCounters& counters, const std::string& model,
                   const std::string& name) {
  Counts counts;
  counts.drafting_steps = required(counters, "drafts", model, name);
  counts.drafted = required(counters, "draft_tokens", model, name);
  counts.accepted = required(counters, "accepted_tokens", model, name);
  for (const auto& [position, accepted] : counters.by_position) {
    counts.accepted_at.resize(static_cast<size_t>(position) + 1);
    counts.accepted_at.back() = accepted;
  }
  const auto sum =
      std::accumulate(counts.accepted_at.begin(), counts.accepted_at.end(), int64_t{0});
  if (!counts.accepted_at.empty() && sum != counts.accepted) {
    throw Error(
        fmt::format("{}: model '{}' accepted {} tokens, but {} by position; was the page "
                    "cut, or put together from two?",
                    name, model, counts.accepted, sum));
  }
  if (counts.accepted > counts.drafted) {
    throw Error(fmt::format("{}: model '{}' accepted {} of {} drafted tokens", name, model,
                            counts.accepted, counts.drafted));
  }
  fill_equal_lengths(counts);
  return counts;
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
  const auto rest = trim(line.substr(line.find("statistics ") + 11));
  LlamaDrafter drafter{.name = std::string(trim(rest.substr(0, rest.find(':')))), .counts = {}};
  Counts& counts = drafter.counts;
  counts.drafting_steps = whole(number_of(line, "#gen drafts"), name, number, "#gen drafts");
  counts.drafted = whole(number_of(line, "#gen tokens"), name, number, "#gen tokens");
  counts.accepted = whole(number_of(line, "#acc tokens"), name, number, "#acc tokens");
  if (counts.accepted > counts.drafted) {
    fail(name, number,
         fmt::format("{} of {} drafted tokens accepted", counts.accepted, counts.drafted));
  }
  add_rates(counts, rates_of(line, "#acc rate/pos"));
  return drafter;
}

/// "draft acceptance = 0.64 (  167 accepted /   259 generated)" of one request.
void add_request(std::string_view line, const std::string& name, int64_t number, Counts& counts) {
  const auto inside = line.substr(std::min(line.find('('), line.size() - 1) + 1);
  const auto slash = inside.substr(std::min(inside.find('/'), inside.size() - 1) + 1);
  counts.accepted += whole(leading_number(inside), name, number, "the number of accepted tokens");
  counts.drafted += whole(leading_number(slash), name, number, "the number of generated tokens");
}

/// "eval time = 2296.72 ms / 256 tokens (...", and the prompt's.
void add_times(std::string_view line, Counts& counts) {
  const size_t found = line.find("eval time =");
  const auto rest = line.substr(found + 11);
  const auto milliseconds = leading_number(rest);
  const auto count = leading_number(rest.substr(std::min(rest.find('/'), rest.size() - 1) + 1));
  if (!milliseconds || !count) {
    return;
  }
  counts.unsplit_seconds += *milliseconds / 1e3;
  const bool prompt = found >= 7 && line.substr(found - 7, 7) == "prompt ";
  if (!prompt) {
    ++counts.generations;
    counts.tokens += static_cast<int64_t>(*count);
  }
}

/// "decoded  256 tokens in    5.123 seconds, speed: ..." of the speculative example, whose clock
/// holds drafts and target, and "encoded ..." of its prompt.
void add_example_times(std::string_view line, bool decoded, Counts& counts) {
  const auto rest = line.substr(line.find("coded ") + 6);
  const size_t found = rest.find("tokens in");
  const auto count = leading_number(rest);
  const auto seconds =
      found == std::string_view::npos ? std::nullopt : leading_number(rest.substr(found + 9));
  if (!count || !seconds) {
    return;
  }
  counts.unsplit_seconds += *seconds;
  if (decoded) {
    counts.generations = 1;
    counts.tokens = static_cast<int64_t>(*count);
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
  } else if (trim(line) == "draft:" || trim(line).ends_with(" draft:")) {
    log.has_contexts = true;
  } else if (line.find("eval time =") != std::string_view::npos) {
    if (!log.has_contexts) {
      add_times(line, log.times);
    }
  } else if (line.find("coded ") != std::string_view::npos &&
             line.find("tokens in") != std::string_view::npos) {
    add_example_times(line, line.find("decoded ") != std::string_view::npos, log.example);
  } else if (number_of(line, "n_drafted")) {
    log.example.drafted = whole(number_of(line, "n_drafted"), name, number, "n_drafted");
    log.has_drafted = true;
  } else if (number_of(line, "n_accept")) {
    log.example.accepted = whole(number_of(line, "n_accept"), name, number, "n_accept");
    log.has_accepted = true;
  }
}

std::vector<ImportedRow> import_run(const std::filesystem::path& folder) {
  std::vector<ImportedRow> rows;
  for (const SummaryRow& row : summarize(load_ordered_records(folder)).rows) {
    if (row.category.empty()) {
      rows.push_back(
          {row.sweep_point.empty() ? row.strategy : row.strategy + ", " + row.sweep_point,
           row.counts});
    }
  }
  return rows;
}

std::vector<ImportedRow> import_answers(const std::filesystem::path& path) {
  const auto answers = read_answers(path);
  if (answers.empty()) {
    throw Error(path.string() + ": holds no answers");
  }
  return {{answers.front().model_id.empty() ? path.stem().string() : answers.front().model_id,
           answer_counts(answers)}};
}

}  // namespace

std::vector<ImportedRow> parse_vllm_metrics(std::string_view text, const std::string& name) {
  std::map<std::string, VllmCounters> models;
  for_each_line(text, [&](std::string_view line, int64_t number) {
    line = trim(line);
    if (line.rfind(kVllmPrefix, 0) != 0) {
      return;
    }
    const size_t name_end = std::min(line.find_first_of("{ \t"), line.size());
    std::string counter(line.substr(0, name_end).substr(std::string_view(kVllmPrefix).size()));
    if (counter.ends_with("_created")) {
      return;  // when the counter began
    }
    if (counter.ends_with("_total")) {
      counter.resize(counter.size() - 6);
    }
    const bool labelled = name_end < line.size() && line[name_end] == '{';
    const size_t close = labelled ? line.rfind('}') : name_end;
    if (close == std::string_view::npos || (labelled && close < name_end)) {
      fail(name, number, "the labels have no closing '}'");
    }
    const auto labels = labelled ? line.substr(name_end + 1, close - name_end - 1) : "";
    const auto value = trim(line.substr(std::min(close + (labelled ? 1 : 0), line.size())));
    const int64_t count = whole(leading_number(value), name, number, "the counter's value");
    VllmCounters& counters = models[label_of(labels, "model_name")];
    if (counter == "accepted_tokens_per_pos") {
      const int64_t position =
          whole(leading_number(label_of(labels, "position")), name, number, "the label 'position'");
      if (position > 10000) {
        fail(name, number, "the label 'position' is above 10000");
      }
      counters.by_position[position] += count;
    } else {
      counters.sums[counter] += count;
    }
  });
  std::vector<ImportedRow> rows;
  for (const auto& [model, counters] : models) {
    rows.push_back({model.empty() ? "vllm" : model, vllm_counts(counters, model, name)});
  }
  if (rows.empty()) {
    throw Error(
        fmt::format("{}: holds no counter that begins with {}; save the /metrics page of a "
                    "server that speculates",
                    name, kVllmPrefix));
  }
  return rows;
}

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

std::vector<ImportedRow> import_counts(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    return import_run(path);
  }
  const std::string text = read_file(path);
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (has(kVllmPrefix)) {
    return parse_vllm_metrics(text, path.string());
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{' && has("choices")) {
    return import_answers(path);
  }
  if (has("#gen tokens") || has("draft acceptance") || has("n_drafted")) {
    return parse_llama_log(text, path.string());
  }
  throw Error(
      fmt::format("{}: is none of what can be imported: a run folder, vLLM's /metrics page "
                  "({}...), llama.cpp's log of a speculation, an answer file of Spec-Bench",
                  path.string(), kVllmPrefix));
}

}  // namespace specdec
