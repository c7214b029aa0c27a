#pragma once
#include <fmt/format.h>

#include "tests/experiments/run/run_fixture.h"
#include "tests/support/golden.h"

namespace specdec {

/// Three strategies on two prompts of different categories, twice.
class ExperimentFixture : public RunFixture {
 protected:
  ExperimentFixture() {
    folder_.write("p.jsonl",
                  "{\"tokens\": [2, 5, 9, 5, 9], \"category\": \"a\"}\n"
                  "{\"tokens\": [2, 7, 11], \"category\": \"b\"}\n");
    const auto weights = test_data("gemma3-a").string();
    folder_.write("c.yaml", fmt::format("model: {{weights: {}}}\n"
                                        "prompts: {{file: p.jsonl}}\n"
                                        "max_new_tokens: 12\n"
                                        "stop: {{ignore_eos: true}}\n"
                                        "repeats: 2\n"
                                        "strategies:\n"
                                        "  - type: autoregressive\n"
                                        "  - name: lookup\n"
                                        "    type: speculative\n"
                                        "    draft_length: 3\n"
                                        "    drafter: {{type: prompt_lookup}}\n"
                                        "  - name: draft\n"
                                        "    type: speculative\n"
                                        "    draft_length: 3\n"
                                        "    drafter: {{type: draft_model, weights: {}}}\n",
                                        weights, weights));
  }
};

}  // namespace specdec
