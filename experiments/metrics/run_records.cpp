#include "experiments/metrics/run_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/metrics/record_json.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {
namespace {

struct ParsedLine {
  nlohmann::json json;
  std::string_view text;  // with its line feed
  int64_t number = 0;
};

/// The object of a line; null where it is none that is read.
nlohmann::json record_of(std::string_view line) {
  try {
    return parse_json_line(line);
  } catch (const std::exception&) {
    return {};
  }
}

/// The lines up to a torn end: a line without its line feed, or of which a power cut has left
/// zeros. Other lines were not torn, whatever they hold.
std::vector<ParsedLine> parse_lines(const NamedText& file, bool& torn) {
  std::vector<ParsedLine> lines;
  std::string_view rest = file.text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view text = rest.substr(0, end == std::string_view::npos ? end : end + 1);
    rest.remove_prefix(text.size());
    if (text.back() != '\n' || (rest.empty() && text.find('\0') != std::string_view::npos)) {
      torn = true;
      break;
    }
    auto json = record_of(text);
    if (!json.is_object()) {
      throw Error(
          fmt::format("{}:{}: is not a record; was the file edited? Run into a new folder, "
                      "or delete that line and those after it.",
                      file.name, number));
    }
    lines.push_back({std::move(json), text, number});
  }
  return lines;
}

/// Runs `parse`; adds file and line to what it throws.
template <class Parse>
auto at_line(const NamedText& file, const ParsedLine& line, Parse parse) {
  try {
    return parse(RecordKeys(line.json));
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& exception) {
    throw Error(fmt::format("{}:{}: is not a record that this version writes ({})", file.name,
                            line.number, plain_json_message(exception)));
  }
}

/// The steps of one generation.
struct StepLines {
  std::vector<StepStatistics> steps;
  std::string text;
  bool in_order = true;
};

std::map<GenerationKey, StepLines> collect_steps(const NamedText& file, bool& torn) {
  std::map<GenerationKey, StepLines> all;
  for (const ParsedLine& line : parse_lines(file, torn)) {
    at_line(file, line, [&](const RecordKeys& keys) {
      StepLines& lines = all[parse_key(keys)];
      lines.in_order = lines.in_order && keys.count("step") == std::ssize(lines.steps);
      lines.steps.push_back(parse_step(keys));
      lines.text += line.text;
    });
  }
  return all;
}

}  // namespace

RecordLines write_record_lines(const GenerationRecord& record) {
  RecordLines lines;
  try {
    const std::vector<StepStatistics>& steps = record.generation.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      lines.steps += step_json(record.key, i, steps[i]).dump() + "\n";
    }
    lines.generation = record_json(record).dump() + "\n";
  } catch (const nlohmann::json::type_error&) {
    throw Error("a strategy, prompt or category has a name that is not UTF-8 text; rename it");
  }
  return lines;
}

RunRecords parse_run_records(const NamedText& generations, const NamedText& steps) {
  RunRecords result;
  const auto lines = parse_lines(generations, result.damaged);
  result.dropped = result.damaged ? 1 : 0;
  auto steps_of = collect_steps(steps, result.damaged);
  std::set<GenerationKey> seen;
  for (const ParsedLine& line : lines) {
    GenerationRecord record = at_line(generations, line, parse_record);
    const auto stated =
        at_line(generations, line, [](const RecordKeys& keys) { return keys.count("steps"); });
    if (!seen.insert(record.key).second) {
      throw Error(
          fmt::format("{}:{}: prompt '{}' of strategy '{}' is recorded twice; was the file "
                      "edited? Run into a new folder.",
                      generations.name, line.number, record.key.prompt_id, record.key.strategy));
    }
    StepLines own;
    if (auto node = steps_of.extract(record.key)) {
      own = std::move(node.mapped());
    }
    if (!own.in_order || std::ssize(own.steps) != stated) {
      result.damaged = true;
      ++result.dropped;
      continue;
    }
    record.generation.steps = std::move(own.steps);
    result.generation_lines += line.text;
    result.step_lines += own.text;
    result.records.push_back(std::move(record));
  }
  if (!steps_of.empty()) {
    // Steps are written before their generation, so a torn generation has left some too.
    result.dropped = std::max<int64_t>(result.dropped, static_cast<int64_t>(steps_of.size()));
    result.damaged = true;
  }
  return result;
}

}  // namespace specdec
