// What the registry says of a component's options is what the component reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "core/error.h"
#include "experiments/components/components.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

/// The keys that the component reads, by the message that names them for an unknown one.
template <class Registry>
std::set<std::string> keys_read(const Registry& registry, const std::string& type,
                                const Components& all) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(parse_yaml("{type: " + type + ", no_such_key: 1}", "c.yaml", false),
                        errors);
  ModelCatalog models;
  (void)registry.prepare(
      node, RunPlan{.components = all, .models = models, .sampling = SamplingParams()});
  const auto mistakes = error_message<ConfigError>([&] { errors->throw_if_any(); });
  auto line = mistakes.substr(mistakes.find("no_such_key: unknown key"));
  line = line.substr(0, line.find('\n'));
  std::istringstream names(line.substr(line.find("nown: ") + 6));
  std::set<std::string> keys;
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    keys.insert(name);
  }
  keys.erase("type");
  return keys;
}

template <class Registry>
void expect_options_are_declared(const Registry& registry, const Components& all) {
  for (const auto& [type, entry] : registry.entries()) {
    std::set<std::string> declared;
    for (const OptionHelp& option : entry.options) {
      EXPECT_TRUE(declared.insert(option.name).second) << type << ": " << option.name << " twice";
      EXPECT_NE(option.meaning, "") << type << ": " << option.name;
    }
    if (type == "cascade") {
      declared.erase("min_tokens");  // of its members
      declared.erase("max_tokens");
    }
    if (registry.kind() == all.caches.kind()) {
      declared.erase("format");  // read_cache reads these of all caches
      declared.erase("codebook");
      declared.erase("exact_recent");
      declared.erase("lossy");
      declared.erase("rotation");
    }
    EXPECT_EQ(keys_read(registry, type, all), declared) << registry.kind() << " " << type;
  }
}

TEST(BuiltinOptionsTest, EveryOptionThatIsReadIsDeclared) {
  const auto all = builtin_components();
  expect_options_are_declared(all.strategies, all);
  expect_options_are_declared(all.drafters, all);
  expect_options_are_declared(all.verifiers, all);
  expect_options_are_declared(all.draft_lengths, all);
  expect_options_are_declared(all.trees, all);
  expect_options_are_declared(all.caches, all);
}

}  // namespace
}  // namespace specdec
