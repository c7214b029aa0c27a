// What a long life costs a vocabulary: thousands of different schemas through one process, with the
// memory that stays and the slowest masks.
//
//     build/grammar_memory_bench [SCHEMAS.jsonl [COUNT [TOKENIZER [SEED]]]]
//
// SCHEMAS: lines {"id", "schema", "tests": [{"data"}]}, as `specdec grammar test` reads them; by
// default those of tests/data. There are fewer than COUNT (11,000): each round after the first
// permutes the letters of property names and enumerated strings, moves bounds and adds a text to
// patterns, by SEED and round, in schemas and instances alike. A schema's instances are walked
// token by token.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/config/config_file.h"
#include "grammar/grammar_matcher.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  std::string id;
  JsonValue schema;
  std::vector<JsonValue> instances;
};

std::vector<Case> read_cases(const std::string& path) {
  std::istringstream file(read_text_file(path, size_t{1} << 30U));
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    const JsonValue value = parse_json(line, path);
    const JsonValue* id = value.find("id");
    const JsonValue* schema = value.find("schema");
    if (id == nullptr || schema == nullptr) {
      throw ConfigError(fmt::format("{}:{}: no 'id' or no 'schema'", path, cases.size() + 1));
    }
    Case one = {id->text, *schema, {}};
    if (const JsonValue* tests = value.find("tests"); tests != nullptr) {
      for (const JsonValue& test : tests->items) {
        one.instances.push_back(*test.find("data"));
      }
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

/// Another schema of the same form.
class Variation {
 public:
  Variation(const JsonValue& schema, uint64_t seed, uint64_t round) : round_(round) {
    if (round == 0) {
      return;
    }
    std::mt19937_64 random(seed * 1'000'003 + round);
    for (const std::string_view group : {"aeiou", "bcdfghjklmnpqrstvwxyz"}) {
      std::string other(group);
      for (size_t i = other.size(); i > 1; --i) {
        std::swap(other[i - 1], other[random() % i]);
      }
      for (size_t i = 0; i < group.size(); ++i) {
        letters_[static_cast<uint8_t>(group[i])] = other[i];
        letters_[static_cast<uint8_t>(group[i] - 'a' + 'A')] =
            static_cast<char>(other[i] - 'a' + 'A');
      }
    }
    collect(schema);
  }

  JsonValue schema(const JsonValue& value) const {
    JsonValue result = value;
    for (JsonMember& member : result.members) {
      if (member.name == "$ref") {
        member.value.text = reference(member.value.text);
      } else if (member.name == "properties") {
        for (JsonMember& property : member.value.members) {
          property = {renamed(property.name), schema(property.value)};
        }
      } else if (is_bound(member.name) && member.value.text.size() < 6 &&
                 member.value.text.find_first_not_of("0123456789") == std::string::npos &&
                 member.value.is(JsonValue::Type::kNumber)) {
        member.value.text = std::to_string(std::stoul(member.value.text) + round_);
      } else if (member.name == "pattern") {
        member.value.text = other_pattern(member.value.text);
      } else if (is_data(member.name)) {
        member.value = instance(member.value);
      } else {
        member.value = schema(member.value);
      }
    }
    for (JsonValue& item : result.items) {
      item = schema(item);
    }
    return result;
  }

  JsonValue instance(const JsonValue& value) const {
    JsonValue result = value;
    if (value.is(JsonValue::Type::kString)) {
      result.text = renamed(value.text);
    }
    for (JsonValue& item : result.items) {
      item = instance(item);
    }
    for (JsonMember& member : result.members) {
      member = {renamed(member.name), instance(member.value)};
    }
    return result;
  }

 private:
  static bool is_data(std::string_view name) {
    return name == "enum" || name == "const" || name == "required" || name == "dependencies" ||
           name == "dependentRequired";
  }
  static bool is_bound(std::string_view name) { return name == "maxLength" || name == "maximum"; }

  /// One that has one more text.
  std::string other_pattern(const std::string& pattern) const {
    return round_ == 0 ? pattern
                       : fmt::format("(?:{})|^{}{}$", pattern, permuted("alternative"), round_);
  }

  void collect(const JsonValue& value) {
    for (const JsonMember& member : value.members) {
      if (member.name == "properties") {
        for (const JsonMember& property : member.value.members) {
          words_.insert(property.name);
        }
      } else if (member.name == "enum" || member.name == "const") {
        words_.insert(member.value.text);
        for (const JsonValue& item : member.value.items) {
          words_.insert(item.text);
        }
      }
      collect(member.value);
    }
    for (const JsonValue& item : value.items) {
      collect(item);
    }
  }

  std::string permuted(std::string text) const {
    for (char& c : text) {
      const char other = letters_[static_cast<uint8_t>(c)];
      c = other == 0 ? c : other;
    }
    return text;
  }

  std::string renamed(const std::string& text) const {
    return words_.contains(text) ? permuted(text) : text;
  }

  /// A pointer's steps below "properties" are names.
  std::string reference(const std::string& text) const {
    std::string result;
    bool name = false;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('/', at), text.size());
      const std::string step = text.substr(at, end - at);
      result += name ? renamed(step) : step;
      result += end < text.size() ? "/" : "";
      name = step == "properties";
      at = end + 1;
    }
    return result;
  }

  uint64_t round_;
  std::array<char, 256> letters_ = {};
  std::set<std::string> words_;
};

/// Megabytes of this process that are in memory.
double resident_mb() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident) * 4096.0 / 1e6;
}

struct SlowMask {
  double ms = 0.0;
  std::string where;
};

struct Figures {
  uint64_t compiled = 0, refused = 0, failed = 0;
  std::vector<float> first_ms, mask_us;
  std::vector<SlowMask> slowest;
  double peak_mb = 0.0;

  void add_mask(double us, const std::string& id, const std::string& text) {
    mask_us.push_back(static_cast<float>(us));
    if (us > 10'000.0) {
      const size_t from = text.size() > 60 ? text.size() - 60 : 0;
      slowest.push_back({us * 1e-3, id + ": " + text.substr(from)});
    }
  }
};

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void walk(const std::shared_ptr<const CompiledGrammar>& grammar, const Tokenizer& tokenizer,
          const std::string& id, const std::string& text, Figures& figures) {
  GrammarMatcher matcher(grammar);
  std::string before;
  for (const Token token : tokenizer.encode(text)) {
    const auto begin = Clock::now();
    const TokenMask mask = matcher.mask();
    figures.add_mask(microseconds_since(begin), id, before);
    before += grammar->vocabulary().bytes(token);
    if (!matcher.accept(token)) {
      return;
    }
  }
}

void run_case(const Case& test_case, const Variation& variation,
              const std::shared_ptr<GrammarVocabulary>& vocabulary, const Tokenizer& tokenizer,
              Figures& figures) {
  const std::string schema = to_json(variation.schema(test_case.schema));
  JsonSchemaOptions any_order;
  any_order.schema_order = false;
  const auto begin = Clock::now();
  const size_t masks = figures.mask_us.size();
  try {
    const auto grammar = compile_json_schema(vocabulary, schema, any_order);
    (void)grammar->mask(grammar->start());
    figures.first_ms.push_back(static_cast<float>(microseconds_since(begin) * 1e-3));
    ++figures.compiled;
    for (const JsonValue& instance : test_case.instances) {
      walk(grammar, tokenizer, test_case.id, to_json(variation.instance(instance)), figures);
    }
    figures.peak_mb = std::max(figures.peak_mb, resident_mb());
  } catch (const GrammarError& error) {
    ++figures.refused;
    if (figures.mask_us.size() != masks) {
      fmt::print("  {}: in a text: {}\n", test_case.id, error.what());
    }
    if (std::string_view(error.what()).find("max_") != std::string_view::npos) {
      ++figures.failed;
    }
  }
}

double quantile(std::vector<float> values, double share) {
  if (values.empty()) {
    return 0.0;
  }
  const auto at =
      values.begin() + static_cast<int64_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void print_memory(size_t done, GrammarVocabulary& vocabulary, const Figures& figures) {
  fmt::print("{:>7} schemas  {:6.0f} MB resident, {:6.0f} at most,", done, resident_mb(),
             figures.peak_mb);
  for (const auto& [name, bytes, max_bytes] : vocabulary.cache_sizes()) {
    fmt::print(" {} {:.1f} of {:.0f},", name, static_cast<double>(bytes) * 1e-6,
               static_cast<double>(max_bytes) * 1e-6);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void print_figures(Figures& figures) {
  fmt::print("compiled {}, refused {}, of these for a limit {}\n", figures.compiled,
             figures.refused, figures.failed);
  fmt::print("first mask, ms   p50 {:.2f}  p99 {:.2f}  max {:.2f}\n",
             quantile(figures.first_ms, 0.5), quantile(figures.first_ms, 0.99),
             quantile(figures.first_ms, 1.0));
  fmt::print("{} masks, us   p50 {:.2f}  p99 {:.2f}  p99.9 {:.2f}  max {:.2f}\n",
             figures.mask_us.size(), quantile(figures.mask_us, 0.5),
             quantile(figures.mask_us, 0.99), quantile(figures.mask_us, 0.999),
             quantile(figures.mask_us, 1.0));
  std::ranges::sort(figures.slowest, std::greater(), &SlowMask::ms);
  const auto slow = std::ranges::count_if(figures.slowest, [](const auto& m) { return m.ms > 50; });
  fmt::print("over 10 ms: {}, over 50 ms: {}\n", figures.slowest.size(), slow);
  for (size_t i = 0; i < std::min<size_t>(12, figures.slowest.size()); ++i) {
    fmt::print("  {:8.1f} ms  {}\n", figures.slowest[i].ms, figures.slowest[i].where);
  }
}

void run(const std::vector<std::string>& arguments) {
  const auto argument = [&](size_t i, const char* usual) {
    return arguments.size() > i ? arguments[i] : usual;
  };
  const auto cases = read_cases(argument(0, "tests/data/grammar/jsonschemabench_subset.jsonl.gz"));
  const size_t count = std::stoul(argument(1, "11000"));
  const auto tokenizer = load_tokenizer(argument(2, "models/target"));
  const uint64_t seed = std::stoul(argument(3, "1"));
  const auto vocabulary = make_grammar_vocabulary(*tokenizer);
  Figures figures;
  print_memory(0, *vocabulary, figures);
  for (size_t i = 0; i < count; ++i) {
    const Case& test_case = cases[i % cases.size()];
    run_case(test_case, Variation(test_case.schema, seed, i / cases.size()), vocabulary, *tokenizer,
             figures);
    if ((i + 1) % 1'000 == 0 || i + 1 == count) {
      print_memory(i + 1, *vocabulary, figures);
    }
  }
  print_figures(figures);
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  try {
    specdec::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  return 0;
}
