#include "experiments/components/model_options.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace specdec {
namespace {

TEST(ModelOptionsTest, LoadingKeysDifferWhereModelsDo) {
  const std::vector<std::function<void(ModelOptions&)>> changes = {
      [](ModelOptions&) {},
      [](ModelOptions& options) { options.dtype = "float64"; },
      [](ModelOptions& options) { options.activations = "int8"; },
      [](ModelOptions& options) { options.kv_dtype = "bfloat16"; },
      [](ModelOptions& options) { options.device = "cuda"; },
      [](ModelOptions& options) { options.max_length = 7; },
      [](ModelOptions& options) { options.cache.yaml = "{type: window}"; },
      [](ModelOptions& options) { options.suppresses = !options.suppresses; },
      [](ModelOptions& options) { options.cuda_graphs += 1; },
      [](ModelOptions& options) { options.prefill_graphs += 1; },
      [](ModelOptions& options) { options.library_products = true; },
      [](ModelOptions& options) { options.random_weights = true; },
      [](ModelOptions& options) { options.memory.model = "target"; },
      [](ModelOptions& options) { options.memory.bytes = 7; },
      [](ModelOptions& options) { options.memory.layer_file = "layers"; },
      [](ModelOptions& options) { options.active_layers.model = "target"; },
      [](ModelOptions& options) { options.active_layers.count = 7; }};
  std::set<std::string> keys;
  for (const auto& change : changes) {
    ModelOptions options;
    change(options);
    keys.insert(loading_key(options));
  }
  EXPECT_EQ(keys.size(), changes.size());
}

TEST(ModelOptionsTest, LoadingKeysAreThoseOfOtherThreadsAndAdapters) {
  ModelOptions options;
  const std::string key = loading_key(options);
  options.threads = 2;
  options.prefill_threads = 2;
  options.thread_reason = "measured";
  options.include_mtp = !options.include_mtp;
  options.adapters.emplace_back();
  EXPECT_EQ(loading_key(options), key);
}

}  // namespace
}  // namespace specdec
