// Records in which a value was replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "experiments/metrics/run_records.h"
#include "tests/experiments/run/folder_record.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

const std::vector<json>& wrong_values() {
  static const std::vector<json> values = {"x",  -1,     1.5,           1e30,          UINT64_MAX,
                                           true, json(), json::array(), json::object()};
  return values;
}

/// Whether the numbers under a key may be negative, or are read without asking.
bool is_signed(const std::string& key) {
  constexpr const char* kKeys[] = {"/gaps", "log_",         "bias",    "bytes_per_step",
                                   "mass",  "load/average", "overlaps"};
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](const char* part) { return key.find(part) != std::string::npos; });
}

/// Whether a value may stand where `good` does.
bool may_replace(const json& good, const json& value, const std::string& key) {
  const bool is_gap = key.rfind("/gaps", 0) == 0;
  if (value.is_string()) {
    return good.is_string();
  }
  if (value.is_null()) {
    return is_gap;
  }
  if (value.is_number()) {
    const bool is_number = good.is_number_float() || is_gap;
    return (is_number && (is_signed(key) || value.get<double>() >= 0.0)) ||
           (good == -1 && value == -1);
  }
  return false;
}

class EditedRecordTest : public testing::Test {
 protected:
  EditedRecordTest() {
    GenerationRecord record = folder_record("a", 1);
    record.bias = BiasSums{.tokens = 1, .taken = 2, .expected = 0.5};
    record.load = MachineLoad{.seconds = 1.5, .average = 0.5, .preemptions = 3};
    record.bytes_per_step = 2.5;
    record.generation.steps[0].by_freedom = {{{1, 0}, {5, 4}, {2, 2}}};
    record.generation.steps[0].mask_seconds = 0.5;
    record.generation.steps[0].overlaps = {0.5};
    lines_ = write_record_lines(record);
  }

  /// "" = read, or what the error says. Whatever is read is also counted.
  std::string complaint(const std::string& generations, const std::string& steps) const {
    try {
      const auto run = parse_run_records({generations, "g.jsonl"}, {steps, "s.jsonl"});
      for (const GenerationRecord& record : run.records) {
        Counts counts;
        counts.add(record.generation);
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  template <class Read>
  void expect_errors(const std::string& line, const std::string& file, Read read) const {
    const json good = json::parse(line);
    const json flat = good.flatten();
    for (const auto& [pointer, leaf] : flat.items()) {
      const json::json_pointer place(pointer);
      for (const json& wrong : wrong_values()) {
        json edited = good;
        edited[place] = wrong;
        if (good[place].is_structured() || edited == good) {
          continue;
        }
        const std::string error = read(edited.dump() + "\n");
        if (may_replace(good[place], wrong, pointer)) {
          continue;
        }
        EXPECT_THAT(error, StartsWith(file + ":1: is not a record")) << pointer << " = " << wrong;
        EXPECT_THAT(error, HasSubstr(pointer.substr(1, pointer.find('/', 1) - 1))) << wrong;
      }
    }
  }

  RecordLines lines_;
};

TEST_F(EditedRecordTest, AWrongValueOfAGenerationIsAnErrorWithItsKey) {
  EXPECT_EQ(complaint(lines_.generation, lines_.steps), "");
  expect_errors(lines_.generation, "g.jsonl",
                [&](const std::string& line) { return complaint(line, lines_.steps); });
}

TEST_F(EditedRecordTest, AWrongValueOfAStepIsAnErrorWithItsKey) {
  expect_errors(lines_.steps, "s.jsonl",
                [&](const std::string& line) { return complaint(lines_.generation, line); });
}

TEST_F(EditedRecordTest, CountsThatContradictOrFillTheMemoryAreErrors) {
  const auto with = [&](const char* key, const json& value) {
    json step = json::parse(lines_.steps);
    step[key] = value;
    return complaint(lines_.generation, step.dump() + "\n");
  };
  EXPECT_THAT(with("accepted", 4), HasSubstr("0 <= accepted <= depth <= drafted"));
  EXPECT_THAT(with("drafted", int64_t{1} << 40), HasSubstr("more tokens than a text has"));
  EXPECT_THAT(with("committed", int64_t{1} << 40), HasSubstr("more tokens than a text has"));
  EXPECT_THAT(with("by_freedom", {1, 2}), HasSubstr("'by_freedom"));
  json generation = json::parse(lines_.generation);
  for (const auto& pages : {R"([[[1099511627776, 1, 2]]])", R"([[[2, 1, 1], [1, 1, 1]]])",
                            R"([[[18446744073709551615, 1, 2]]])", "[[[1, 2]]]", "[3]"}) {
    generation["cache_trace"]["pages"] = json::parse(pages);
    EXPECT_THAT(complaint(generation.dump() + "\n", lines_.steps), HasSubstr("pages")) << pages;
  }
}

}  // namespace
}  // namespace specdec
