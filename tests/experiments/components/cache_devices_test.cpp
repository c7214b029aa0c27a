#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "experiments/components/cache_choice.h"
#include "experiments/components/components.h"
#include "experiments/components/memory_needs.h"
#include "experiments/components/model_loading.h"
#include "experiments/config/config_node.h"
#include "experiments/run/experiment_config.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

struct CacheOnDevice {
  std::string yaml;
  std::string device;
};

/// What the lines of a message say behind `prefix`, a line each; lines without it are of others.
std::string behind(const std::string& prefix, const std::string& message) {
  std::string found;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find(prefix);
    found += begin == std::string::npos ? "" : line.substr(begin + prefix.size()) + "\n";
  }
  return found;
}

/// What 'specdec check' and 'specdec run' say of the cache's keys; "" = nothing.
std::string error_of_run(const CacheOnDevice& one) {
  const TemporaryFolder folder;
  folder.write("p.jsonl", "{\"tokens\": [2, 5]}\n");
  const auto config = folder.write(
      "c.yaml",
      fmt::format("model: {{weights: {}, device: {}, cache: {}}}\nprompts: {{file: p.jsonl}}\n"
                  "strategies: [{{type: autoregressive}}]\n",
                  test_data("gemma3-a").string(), one.device, one.yaml));
  return behind("model.cache.", error_message<ConfigError>([&] {  // the device may be one, too
                  (void)load_experiment(config, {}, builtin_components());
                }));
}

/// The error that 'specdec inspect' gives for a cache on a device.
std::string error_of_inspect(const CacheOnDevice& one) {
  return behind("--cache: cache.", error_message<ConfigError>([&] {
                  const CacheChoice cache = parse_cache(one.yaml, builtin_components());
                  (void)memory_needs(read_model_files(test_data("gemma3-a")),
                                     {.dtype = "", .device = one.device, .cache = cache}, 64);
                }));
}

/// Whether the cache, made on that device, says that it is for others.
bool is_refused_when_made(const CacheOnDevice& one) {
  const at::Device device(one.device);
  const CacheChoice choice = parse_cache(one.yaml, builtin_components());
  try {
    (void)choice.factory(KvFormat::kNative)({{.kv_heads = 1, .head_dim = 32}},
                                            {.device = device, .max_length = 64});
  } catch (const Error& error) {
    return std::string(error.what()).find("is for the CPU") != std::string::npos;
  } catch (const c10::Error&) {  // no such device here
  }
  return false;
}

/// The examples of `specdec list cache`, each plain, with a format and traced.
std::vector<std::string> caches_of_all_types() {
  std::vector<std::string> caches = {"{type: tiered, host_megabytes: 1}",
                                     "{type: tracing, of: {type: tiered, host_megabytes: 1}}",
                                     "{type: tracing, of: {type: window}, lossy: true}"};
  const Components all = builtin_components();
  for (const auto& [name, entry] : all.caches.entries()) {
    for (const Example& example : entry.examples) {
      caches.push_back(example.yaml);
    }
    caches.push_back(fmt::format("{{type: {}, format: q8, lossy: true}}", name));
  }
  return caches;
}

TEST(CacheDevicesTest, InspectRefusesWhatRunRefuses) {
  int refused = 0;
  for (const std::string& yaml : caches_of_all_types()) {
    for (const char* device : {"cpu", "cuda", "mps"}) {
      const CacheOnDevice one{yaml, device};
      const std::string error = error_of_run(one);
      EXPECT_EQ(error_of_inspect(one), error) << yaml << " on " << device;
      refused += error.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 10);
}

/// A type that is refused only when it is made would be an error in the middle of a run.
TEST(CacheDevicesTest, WhatCannotBeMadeOnADeviceIsRefusedBefore) {
  for (const std::string& yaml : caches_of_all_types()) {
    for (const char* device : {"cuda", "mps"}) {
      const CacheOnDevice one{yaml, device};
      EXPECT_EQ(is_refused_when_made(one), !error_of_run(one).empty()) << yaml << " on " << device;
    }
  }
}

/// A cache of one's own that Metal has may wrap one that it does not have.
TEST(CacheDevicesTest, AWrappedTypeThatMetalDoesNotHaveIsRefused) {
  Components all = builtin_components();
  all.caches.add("wrapper", {.help = "the cache that it wraps",
                             .promise = Promise::kLossless,
                             .prepare = [](const ConfigNode& node, const RunPlan& plan) {
                               return plan.components.caches.prepare(node.component("of"), plan);
                             }});
  EXPECT_EQ(parse_cache("{type: wrapper, of: {type: paged}}", all).no_mps, "");
  EXPECT_EQ(parse_cache("{type: wrapper, of: {type: tiered}}", all).no_mps, "tiered");
}

TEST(CacheDevicesTest, MetalHasTwoTypes) {
  const Components all = builtin_components();
  for (const auto& [name, entry] : all.caches.entries()) {
    const bool lossy = entry.promise == Promise::kLossy;
    const std::string error =
        error_of_run({fmt::format("{{type: {}{}}}", name, lossy ? ", lossy: true" : ""), "mps"});
    const std::string why = fmt::format(
        "type: {} is for the CPU and CUDA, but device is mps; choose another cache, or device: "
        "cpu\n",
        name);
    EXPECT_EQ(error, name == "paged" || name == "contiguous" ? "" : why);
  }
  EXPECT_THAT(error_of_run({"{type: tracing, of: {type: tiered}}", "cuda"}),
              HasSubstr("a trace of one with tiers is for the CPU, but device is cuda"));
}

}  // namespace
}  // namespace specdec
