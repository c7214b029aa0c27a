// Strategies as a config names them: what is refused before anything is loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/error.h"
#include "experiments/components/components.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What is said of a strategy, written as YAML, inside one that may weigh its distributions.
std::string refusal_of_strategy(const std::string& yaml, bool weights) {
  const Components components = builtin_components();
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(parse_yaml("strategy: " + yaml, "c.yaml", false), errors);
  ModelCatalog models;
  const RunPlan plan{.components = components,
                     .target = nullptr,
                     .models = models,
                     .sampling = SamplingParams(),
                     .weights = weights};
  return error_message<ConfigError>([&] {
    components.strategies.prepare(node.component("strategy"), plan);
    errors->throw_if_any();
  });
}

TEST(BuiltinStrategiesTest, BeamSearchesUnderARuleAreRefusedWhenTheConfigIsRead) {
  for (const std::string yaml :
       {"{type: beam_search}", "{type: speculative_beam, drafter: {type: prompt_lookup}}"}) {
    EXPECT_THAT(refusal_of_strategy(yaml, true),
                AllOf(HasSubstr("c.yaml: strategy: beam search ranks"),
                      HasSubstr("DistributionWeights"), HasSubstr("use autoregressive")));
    EXPECT_EQ(refusal_of_strategy(yaml, false), "no error");
  }
  for (const std::string yaml :
       {"autoregressive", "{type: speculative, drafter: {type: prompt_lookup}}"}) {
    EXPECT_EQ(refusal_of_strategy(yaml, true), "no error");
  }
}

}  // namespace
}  // namespace specdec
