#include "experiments/run/import_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/metrics/answers.h"
#include "experiments/run/imported_text.h"
#include "experiments/run/record_order.h"

namespace specdec {
namespace {

constexpr const char* kVllmPrefix = "vllm:spec_decode_num_";

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
  std::set<std::string, std::less<>> seen;  // names with their labels
  for_each_line(text, [&](std::string_view line, int64_t number) {
    line = trim_blanks(line);
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
      fail_at_line(name, number, "the labels have no closing '}'");
    }
    if (!seen.emplace(line.substr(0, close)).second) {
      fail_at_line(name, number, "this counter stands twice; was the page put together from two?");
    }
    const auto labels = labelled ? line.substr(name_end + 1, close - name_end - 1) : "";
    const auto value = trim_blanks(line.substr(std::min(close + (labelled ? 1 : 0), line.size())));
    const int64_t count = whole_count(leading_number(value), name, number, "the counter's value");
    VllmCounters& counters = models[label_of(labels, "model_name")];
    if (counter == "accepted_tokens_per_pos") {
      const int64_t position = whole_count(leading_number(label_of(labels, "position")), name,
                                           number, "the label 'position'");
      if (position > 10000) {
        fail_at_line(name, number, "the label 'position' is above 10000");
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
