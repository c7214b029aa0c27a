#include "experiments/metrics/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/formats/strict_json.h"
#include "core/hash.h"
#include "experiments/metrics/jsonl.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKind = "an answer line of Spec-Bench";

/// A number where it is one: Spec-Bench's ids are whole numbers.
Json id_json(const std::string& id) {
  const bool number = !id.empty() && id.size() < 18 && (id == "0" || id.front() != '0') &&
                      std::all_of(id.begin(), id.end(), is_digit<char>);
  return number ? Json(std::stoll(id)) : Json(id);
}

/// Names a line for good: FNV-1a of what it is about.
std::string answer_id(const std::string& model_id, const std::string& question_id) {
  const std::string text = model_id + '\n' + question_id;
  return fmt::format("{:016x}", fnv1a(kHashStart, text.data(), text.size()));
}

Json choice_json(const std::vector<const GenerationRecord*>& turns, size_t index) {
  Json choice = {{"index", index},
                 {"turns", Json::array()},
                 {"decoding_steps", Json::array()},
                 {"new_tokens", Json::array()},
                 {"wall_time", Json::array()},
                 {"accept_lengths", Json::array()}};
  for (const GenerationRecord* record : turns) {
    const Generation& generation = record->generation;
    choice["turns"].push_back(record->text);
    choice["decoding_steps"].push_back(generation.steps.size());
    choice["new_tokens"].push_back(generation.tokens.size());
    choice["wall_time"].push_back(generation.prefill_seconds + generation.decode_seconds);
    for (const StepStatistics& step : generation.steps) {
      choice["accept_lengths"].push_back(step.committed);
    }
  }
  return choice;
}

void require(bool right, const std::string& message) {
  if (!right) {
    throw Error(message);
  }
}

AnswerChoice parse_choice(const RecordKeys& keys) {
  AnswerChoice choice{.turns = keys.texts("turns"),
                      .decoding_steps = keys.counts("decoding_steps"),
                      .new_tokens = keys.counts("new_tokens"),
                      .wall_time = keys.numbers("wall_time"),
                      .accept_lengths = keys.counts("accept_lengths")};
  require(choice.new_tokens.size() == choice.turns.size() &&
              choice.wall_time.size() == choice.turns.size() &&
              choice.decoding_steps.size() == choice.turns.size(),
          fmt::format("{} turns, but {} new_tokens, {} wall_time and {} decoding_steps",
                      choice.turns.size(), choice.new_tokens.size(), choice.wall_time.size(),
                      choice.decoding_steps.size()));
  require(std::all_of(choice.wall_time.begin(), choice.wall_time.end(),
                      [](double seconds) { return seconds >= 0.0; }),
          "'wall_time' holds a negative time");
  require(std::all_of(choice.accept_lengths.begin(), choice.accept_lengths.end(),
                      [](int64_t length) { return length <= kMostStepTokens; }),
          "'accept_lengths' holds more tokens than a text has");
  return choice;
}

Answer parse_answer(const RecordKeys& line) {
  Answer answer;
  const auto& id = line.at("question_id");
  require(id.is_string() || id.is_number_integer(), "'question_id' is neither a number nor a text");
  answer.question_id = id.is_string() ? id.get<std::string>() : id.dump();
  answer.category = line.text("category", "");
  answer.model_id = line.text("model_id", "");
  for (const RecordKeys& choice : line.objects("choices")) {
    answer.choices.push_back(parse_choice(choice));
  }
  require(!answer.choices.empty(), "'choices' is empty");
  return answer;
}

}  // namespace

std::string write_answers(std::span<const GenerationRecord* const> records,
                          const std::string& model_id, double timestamp) {
  struct Question {
    std::string id, category;
    std::map<int64_t, std::vector<const GenerationRecord*>> repeats = {};
  };
  std::vector<Question> questions;
  for (const GenerationRecord* record : records) {
    const auto& id = record->question_id.empty() ? record->key.prompt_id : record->question_id;
    auto found = std::find_if(questions.begin(), questions.end(),
                              [&](const Question& question) { return question.id == id; });
    if (found == questions.end()) {
      found = questions.insert(questions.end(), {.id = id, .category = record->category});
    }
    found->repeats[record->key.repeat].push_back(record);
  }
  std::string lines;
  for (Question& question : questions) {
    Json choices = Json::array();
    for (auto& [repeat, turns] : question.repeats) {
      std::sort(
          turns.begin(), turns.end(),
          [](const GenerationRecord* a, const GenerationRecord* b) { return a->turn < b->turn; });
      choices.push_back(choice_json(turns, choices.size()));
    }
    const Json line = {{"question_id", id_json(question.id)},
                       {"category", question.category},
                       {"answer_id", answer_id(model_id, question.id)},
                       {"model_id", model_id},
                       {"choices", std::move(choices)},
                       {"tstamp", timestamp}};
    lines += json_text(line) + "\n";
  }
  return lines;
}

std::string answers_file_name(const std::string& strategy, const std::string& sweep_point) {
  std::string name = sweep_point.empty() ? strategy : strategy + ", " + sweep_point;
  for (char& c : name) {
    c = c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20U ? '_' : c;
  }
  if (name.front() == '.') {
    name.front() = '_';
  }
  return name + ".jsonl";
}

std::vector<Answer> read_answers(const std::filesystem::path& file) {
  std::vector<Answer> answers;
  read_json_lines(read_file(file), file.string(), kKind, [&](const nlohmann::json& line, int64_t) {
    answers.push_back(parse_answer(RecordKeys(line)));
  });
  return answers;
}

Counts answer_counts(std::span<const Answer> answers) {
  Counts counts;
  for (const Answer& answer : answers) {
    for (const AnswerChoice& choice : answer.choices) {
      counts.generations += static_cast<int64_t>(choice.turns.size());
      counts.tokens +=
          std::accumulate(choice.new_tokens.begin(), choice.new_tokens.end(), int64_t{0});
      counts.unsplit_seconds +=
          std::accumulate(choice.wall_time.begin(), choice.wall_time.end(), 0.0);
      counts.steps += static_cast<int64_t>(choice.accept_lengths.size());
      for (const int64_t length : choice.accept_lengths) {
        counts.committed += length;
        counts.accepted += std::max<int64_t>(0, length - 1);
        const auto size = static_cast<size_t>(length);
        counts.steps_committing.resize(std::max(counts.steps_committing.size(), size + 1));
        ++counts.steps_committing[size];
      }
    }
  }
  return counts;
}

}  // namespace specdec
