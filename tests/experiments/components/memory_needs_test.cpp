#include "experiments/components/memory_needs.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/families/model_size.h"
#include "core/formats/safetensors.h"
#include "core/formats/strict_json.h"
#include "experiments/components/components.h"
#include "kv/kv_cache.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/live_bytes.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

struct MemoryCase {
  std::filesystem::path model;
  int64_t context;
  std::string dtype = {};
  std::string kv_dtype = {};
  int64_t window_slack = 0;
};

void PrintTo(const MemoryCase& one, std::ostream* out) {
  *out << one.model.filename().string() << " " << one.context << " " << one.dtype << " "
       << one.kv_dtype << " " << one.window_slack;
}

CacheChoice slack_cache(int64_t window_slack) {
  return parse_cache(fmt::format("{{type: paged, window_slack: {}}}", window_slack),
                     builtin_components());
}

class MemoryNeedsTest : public testing::TestWithParam<MemoryCase> {};

TEST_P(MemoryNeedsTest, AreWhatAPromptAllocates) {
  const c10::InferenceMode guard;
  const MemoryCase& given = GetParam();
  const ModelOptions options{.dtype = given.dtype,
                             .kv_dtype = given.kv_dtype,
                             .cache = slack_cache(given.window_slack),
                             .threads = 1};
  const ModelFiles files = read_model_files(given.model);
  const MemoryNeeds needs = memory_needs(files, options, given.context);
  const auto bytes = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, bytes);

  const auto weights = load_model(*files.open, {.dtype = parse_dtype(given.dtype)});
  const auto weight_bytes = static_cast<double>(needs.matrices + needs.vectors);
  EXPECT_NEAR(static_cast<double>(bytes->live()), weight_bytes, 0.01 * weight_bytes);

  bytes->forget_most();
  KvCache* cache = nullptr;
  const KvStoreFactory paged =
      paged_kv(kDefaultPageSize, parse_kv_dtype(given.kv_dtype), 0, given.window_slack);
  TransformerModel model(weights, [&](std::vector<LayerKv> layers, const KvStoreOptions& store) {
    auto made = paged(std::move(layers), store);
    cache = dynamic_cast<KvCache*>(made.get());
    return made;
  });
  const std::vector<Token> prompt(static_cast<size_t>(given.context), 5);
  const ForwardResult result = model.prefill(prompt, {.logits = Logits::kLast});
  ASSERT_NE(cache, nullptr);
  EXPECT_EQ(cache->statistics().allocated_bytes(), needs.cache());
  const int64_t most = bytes->most() + needs.cache();  // whose pages are no tensors' own
  EXPECT_LE(most, needs.total() + needs.total() / 20);
  EXPECT_GE(most, needs.total() - needs.total() / 10);
}

std::vector<MemoryCase> memory_cases() {
  const std::filesystem::path target = SPECDEC_SOURCE_DIR "/models/target";
  return {{test_data("gemma4-e-a"), 512},
          {test_data("gemma4-e-a"), 100, "bfloat16", "bfloat16"},
          {test_data("gguf/gemma4-moe-q8_0.gguf"), 300},
          {test_data("gguf/gemma3n-q8_0.gguf"), 64},
          {target, 1000},
          {target, 700, "int8", "bfloat16"},
          {target, 1000, "", "", 16}};
}

INSTANTIATE_TEST_SUITE_P(All, MemoryNeedsTest, testing::ValuesIn(memory_cases()));

TEST(MemoryNeedsOfModelsTest, WhatATieredCacheHasNoMemoryForLiesOnDisk) {
  const ModelFiles files = read_model_files(SPECDEC_SOURCE_DIR "/models/target");
  const auto needs = [&](const std::string& cache) {
    return memory_needs(files, {.dtype = "", .cache = parse_cache(cache, builtin_components())},
                        1000);
  };
  const MemoryNeeds paged = needs("paged");
  for (const char* cache : {"{type: tiered, memory_megabytes: 1}",
                            "{type: tracing, of: {type: tiered, memory_megabytes: 1}}"}) {
    const MemoryNeeds tiered = needs(cache);
    EXPECT_EQ(tiered.cache(), paged.cache());
    EXPECT_EQ(tiered.cache_on_disk, paged.cache() - (1 << 20));
    EXPECT_EQ(tiered.total(), paged.total() - tiered.cache_on_disk);
  }
  EXPECT_EQ(needs("tiered").cache_on_disk, 0) << "256 MiB hold all";
  EXPECT_EQ(needs("{type: tiered, memory_megabytes: 1}").pinned_cache, 0) << "on the CPU";
  const auto pinned = [&](const std::string& host) {
    return memory_needs(files,
                        {.dtype = "",
                         .device = "cuda",
                         .cache = parse_cache("{type: tiered, memory_megabytes: 1" + host + "}",
                                              builtin_components())},
                        1000)
        .pinned_cache;
  };
  // A block is a page of 16 tokens of a layer: 1 head's keys and values of 64 float32.
  EXPECT_EQ(pinned(""), 8 * 2 * 16 * 64 * 4);
  EXPECT_EQ(pinned(", host_megabytes: 3"), 4 << 20) << "a power of two";
}

/// A copy of a golden folder whose layers' matrices are FP8 of one scale, all zero.
void write_float8_copy(const std::filesystem::path& from, const TemporaryFolder& to) {
  nlohmann::json config = nlohmann::json::parse(read_file(from / "config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"}};
  to.write("config.json", config.dump());
  const SafetensorsFile stored(from / "model.safetensors");
  static const std::vector<std::byte> zeros(1 << 20);
  std::vector<TensorToWrite> tensors;
  for (const TensorEntry& entry : stored.tensors()) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
    if (entry.name.ends_with("_proj.weight")) {
      const auto values = static_cast<size_t>(entry.shape[0] * entry.shape[1]);
      tensors.back().dtype = DType::kF8E4M3;
      tensors.back().bytes = std::span(zeros).first(values);
      tensors.push_back(
          {entry.name + "_scale_inv", DType::kF32, {1}, std::span(zeros).first(sizeof(float))});
    }
  }
  write_safetensors(to.path() / "model.safetensors", tensors);
}

TEST(MemoryNeedsOfModelsTest, GpusHoldFp8AsItIs) {
  const TemporaryFolder folder;
  write_float8_copy(test_data("gemma3-a"), folder);
  const ModelFiles files = read_model_files(folder.path());
  const auto matrices = [&](const char* device) {
    return memory_needs(files, {.dtype = "", .device = device}, 64).matrices;
  };
  const int64_t plain =
      memory_needs(read_model_files(test_data("gemma3-a")), {.dtype = "", .device = "mps"}, 64)
          .matrices;
  EXPECT_LT(matrices("cuda"), plain) << "FP8";
  EXPECT_LT(matrices("mps"), plain);
  EXPECT_LE(matrices("mps"), matrices("cuda")) << "rows are not padded";
}

TEST(MemoryNeedsOfModelsTest, ALibrarysProductsHaveScratch) {
  const ModelFiles files = read_model_files(test_data("gemma3-a"));
  const auto scratch = [&](int64_t context, const char* dtype) {
    ModelOptions options{.dtype = dtype, .device = "cuda"};
    const int64_t without = memory_needs(files, options, context).activations;
    options.library_products = true;
    return memory_needs(files, options, context).activations - without;
  };
  const int64_t hidden = files.config.hidden_size;
  const int64_t mlp = files.plan.front().intermediate_size;
  EXPECT_EQ(scratch(256, "bfloat16"),
            (64 << 20) + 4 * mlp * hidden + 8 * 512 * (std::max(mlp, hidden) + 2 * mlp));
  EXPECT_EQ(scratch(255, "bfloat16"), 0) << "too few tokens";
  EXPECT_EQ(scratch(256, "float32"), 0) << "no matrix is unpacked";
}

/// It is measured on a device that would take it.
TEST(MemoryNeedsOfModelsTest, AFormatThatMetalDoesNotHaveIsAnError) {
  const ModelFiles files = read_model_files(test_data("gemma3-a"));
  const auto needs = [&](const std::string& device, const std::string& format) {
    const std::string cache = "{type: paged, lossy: true, format: " + format + "}";
    return memory_needs(
               files,
               {.dtype = "", .device = device, .cache = parse_cache(cache, builtin_components())},
               64)
        .cache();
  };
  for (const std::string format : {"q3", "kivi4"}) {
    EXPECT_THAT(error_message<ConfigError>([&] { (void)needs("mps", format); }),
                testing::HasSubstr("--cache: cache.format: " + format +
                                   " is for float32 activations on the CPU and CUDA, but device "
                                   "is mps; leave it out, or change that"));
    EXPECT_GT(needs("cuda", format), 0);
  }
  EXPECT_GT(needs("mps", "q8"), 0);
  EXPECT_LT(3 * needs("mps", "q8"), 2 * needs("mps", "float16")) << "it stays a byte a number";
}

TEST(MemoryNeedsOfModelsTest, WithSlackWindowsTakeWhatAPieceOfAPromptNeeds) {
  const ModelFiles files = read_model_files(SPECDEC_SOURCE_DIR "/models/target");
  const auto needs = [&](int64_t slack, const std::string& device) {
    return memory_needs(files, {.dtype = "", .device = device, .cache = slack_cache(slack)}, 1000);
  };
  constexpr int64_t kPage = 2 * 64 * 16 * 4;
  EXPECT_EQ(needs(0, "cpu").sliding_cache, 63 * 5 * kPage);
  // 27 of the first piece's 32 pages are given back, then 31 more are needed.
  EXPECT_EQ(needs(16, "cpu").sliding_cache, (5 + 31) * 5 * kPage);
  EXPECT_EQ(needs(16, "cpu").full_cache, 63 * kPage);
  EXPECT_EQ(needs(0, "cuda").sliding_cache, 64 * 5 * kPage);
  EXPECT_EQ(needs(16, "cuda").sliding_cache, (592 / 16 + 1) * 5 * kPage);
  EXPECT_EQ(needs(16, "cuda").full_cache, 64 * kPage);
}

TEST(MemoryNeedsOfModelsTest, LayersThatShareKeysTakeNoneAndTablesStayInTheirFile) {
  const ModelFiles files = read_model_files(test_data("gemma4-e-a"));
  const MemoryNeeds needs = memory_needs(files, {}, 100);
  int64_t sliding = 0;
  int64_t full = 0;
  for (const LayerPlan& layer : files.plan) {
    if (layer.kv_source < 0) {
      (layer.window > 0 ? sliding : full) += 2 * kv_rows(layer) * 4;
    }
  }
  EXPECT_EQ(needs.sliding_cache, 112 * sliding) << "7 pages of 16";
  EXPECT_EQ(needs.full_cache, 112 * full);
  EXPECT_EQ(needs.cache_per_token, sliding + full);
  const auto on_device = memory_needs(files, {.dtype = "", .device = "cuda"}, 100);
  EXPECT_EQ(on_device.cache(), 512 * needs.cache_per_token) << "all of the model's max_length";
  const auto with_cache = [&](const std::string& cache, const std::string& device) {
    return memory_needs(
               files,
               {.dtype = "", .device = device, .cache = parse_cache(cache, builtin_components())},
               100)
        .cache();
  };
  EXPECT_EQ(with_cache("{type: paged, max_pages: 9}", "cuda"), 144 * needs.cache_per_token);
  EXPECT_EQ(with_cache("{type: paged, page_size: 7}", "cpu"), 105 * needs.cache_per_token);
  EXPECT_EQ(with_cache("contiguous", "cpu"), 512 * needs.cache_per_token);
  EXPECT_EQ(with_cache("{type: contiguous, max_rows: 3}", "cuda"), 1536 * needs.cache_per_token);
  int64_t rows = 0;
  for (const auto& [format, bytes] :
       measure_weights(*files.open, {.dtype = {}, .place = {at::kCPU, WeightLayout::kRows}})) {
    rows += bytes;
  }
  EXPECT_EQ(on_device.matrices, rows) << "in fragments";
  EXPECT_NE(on_device.matrices, needs.matrices);
  EXPECT_EQ(needs.mapped, files.config.per_layer_vocab * files.config.per_layer_count *
                              files.plan.front().per_layer_size * 4);
}

TEST(MemoryNeedsOfModelsTest, StatesAreThoseOfAPromptOnTheCpuAndAllOfThemOnADevice) {
  const ModelFiles files = read_model_files(test_data("recurrentgemma-a"));
  const int64_t state = 3 * 4 * 24 * 4;  // layers, width, channels, bytes
  const auto states = [&](const std::string& device, const std::string& cache = "paged") {
    return memory_needs(
               files,
               {.dtype = "", .device = device, .cache = parse_cache(cache, builtin_components())},
               100)
        .states;
  };
  EXPECT_EQ(states("cpu"), 100 * state);
  EXPECT_EQ(states("cuda"), (512 + 1 + 16) * state);
  EXPECT_EQ(states("cuda", "{type: paged, state_checkpoints: 3}"), (512 + 1 + 3) * state);
  EXPECT_EQ(states("cuda", "{type: paged, state_megabytes: 1}"), (1 << 20) / state * state);
  EXPECT_EQ(states("cuda", "contiguous"), states("cuda"));
}

TEST(MemoryNeedsOfModelsTest, ContextsThatTheModelDoesNotHoldAreErrors) {
  const ModelFiles files = read_model_files(test_data("gemma4-e-a"));
  for (const int64_t context : {0, 513}) {
    EXPECT_THAT(error_message<ConfigError>([&] { (void)memory_needs(files, {}, context); }),
                testing::HasSubstr("the model takes 1 to 512"));
  }
}

}  // namespace
}  // namespace specdec
