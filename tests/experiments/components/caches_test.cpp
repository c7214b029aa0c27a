// The promise of every registered cache: an exact one gives the bits of the paged one.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/kv_trace.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/builtin/builtin.h"
#include "kv/paged_kv.h"
#include "tests/support/cache_pair.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kCacheVocab = 40;

TEST(CachesTest, ExactCachesGiveTheSameBits) {
  const c10::InferenceMode guard;
  const Components all = builtin_components();
  for (const auto& [type, entry] : all.caches.entries()) {
    ASSERT_FALSE(entry.examples.empty()) << type;
    if (entry.promise == Promise::kLossy) {
      continue;
    }
    for (const Example& example : entry.examples) {
      for (const KvFormat format : kKvFormats) {
        SCOPED_TRACE(example.yaml);
        CachePair pair(tiny_gemma(kCacheVocab, at::kFloat),
                       parse_cache(example.yaml, all).factory(format), format, 3);
        for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) {
          pair.step();
        }
      }
    }
  }
}

TEST(CachesTest, AWindowThatNoTokenLeavesGivesTheSameBits) {
  const c10::InferenceMode guard;
  const CacheChoice choice =
      parse_cache("{type: window, sink: 3, recent: 4096, lossy: true}", builtin_components());
  CachePair pair(tiny_gemma(kCacheVocab, at::kFloat), choice.factory(KvFormat::kNative),
                 KvFormat::kNative, 5);
  for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) {
    pair.step();
  }
}

TEST(CachesTest, MeansThatNoTokenSeesGiveTheSameBits) {
  const c10::InferenceMode guard;
  const CacheChoice choice = parse_cache(
      "{type: compressed, chunk: 2, recent: 4096, sink: 0, lossy: true}", builtin_components());
  CachePair pair(tiny_gemma(kCacheVocab, at::kFloat), choice.factory(KvFormat::kNative),
                 KvFormat::kNative, 5);
  for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) {
    pair.step();
  }
}

/// The logits of a text's last token, fed in pieces of `piece` tokens.
Tensor last_logits(TransformerModel& model, const std::vector<Token>& text, size_t piece) {
  model.truncate(0);
  Tensor logits;
  for (size_t first = 0; first < text.size(); first += piece) {
    const auto count = std::min(piece, text.size() - first);
    const std::vector<Token> part(text.begin() + static_cast<int64_t>(first),
                                  text.begin() + static_cast<int64_t>(first + count));
    logits = model.forward({.tokens = at::tensor(part, at::kInt)}).logits.clone();
    std::vector<int64_t> path(count);
    std::iota(path.begin(), path.end(), 0);
    model.commit(path);
  }
  return logits[logits.size(0) - 1];
}

TEST(CachesTest, ACompressedCacheIsAnotherModelWhoseBitsDependOnTheTextAlone) {
  const c10::InferenceMode guard;
  const auto weights = tiny_gemma(kCacheVocab, at::kFloat);
  for (const char* format : {"", ", format: q8", ", format: q4, rotation: hadamard"}) {
    const CacheChoice choice = parse_cache(
        fmt::format("{{type: compressed, chunk: 4, recent: 6, sink: 1, lossy: true{}}}", format),
        builtin_components());
    EXPECT_THAT(choice.loss, HasSubstr("type: compressed"));
    TransformerModel model(weights, choice.factory(KvFormat::kNative));
    TransformerModel plain(
        weights, paged_kv(16, choice.format.value_or(KvFormat::kNative), 0, 0, choice.rotation));
    std::vector<Token> text;
    for (Token token = 0; token < 30; ++token) {
      text.push_back(token * 7 % kCacheVocab);
    }
    const Tensor at_once = last_logits(model, text, text.size());
    EXPECT_TRUE(at::equal(last_logits(model, text, 1), at_once));
    EXPECT_TRUE(at::equal(last_logits(model, text, 7), at_once));
    EXPECT_FALSE(at::equal(last_logits(plain, text, 7), at_once));
    EXPECT_NE(model.snapshots()->kv_key(), plain.snapshots()->kv_key());
    text.resize(10);  // 4 tokens behind the sink are pooled from 11 tokens on
    EXPECT_TRUE(at::equal(last_logits(model, text, 3), last_logits(plain, text, 3)));
  }
}

TEST(CachesTest, ACompressedCacheSaysWhatItCannotDo) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("compressed"), HasSubstr("changes what the target sees"));
  EXPECT_THAT(error("{type: compressed, chunk: 1, lossy: true}"), HasSubstr("chunk"));
  EXPECT_THAT(error("{type: compressed, recent: 0, lossy: true}"), HasSubstr("recent"));
  EXPECT_THAT(error("{type: tracing, of: {type: compressed}, lossy: true}"),
              HasSubstr("cannot be traced"));
}

TEST(CachesTest, AWindowThinsLayersOfFullAttention) {
  const auto weights = tiny_gemma(kCacheVocab, at::kFloat);
  const CacheChoice choice =
      parse_cache("{type: window, sink: 2, recent: 5, lossy: true}", builtin_components());
  EXPECT_THAT(choice.loss, HasSubstr("type: window"));
  TransformerModel model(weights, choice.factory(KvFormat::kNative));
  bool has_full = false;
  for (size_t layer = 0; layer < weights->plan.size(); ++layer) {
    const int64_t own = weights->plan[layer].window;
    const KvView view = model.cache().view(static_cast<int64_t>(layer));
    EXPECT_EQ(view.window, own > 0 ? own : 5);
    EXPECT_EQ(view.sink, own > 0 ? 0 : 2);
    has_full = has_full || own == 0;
  }
  EXPECT_TRUE(has_full);
  TransformerModel plain(weights, paged_kv());
  EXPECT_NE(model.snapshots()->kv_key(), plain.snapshots()->kv_key());
}

/// Keys that nodes saw in one of a trace's layers.
int64_t keys_seen(const KvTrace::Layer& layer) {
  return std::accumulate(layer.keys.begin(), layer.keys.end(), int64_t{0});
}

TEST(CachesTest, ATraceCountsWhatForwardsWriteAndRead) {
  const c10::InferenceMode guard;
  const CacheChoice choice =
      parse_cache("{type: tracing, of: {type: paged, page_size: 4}}", builtin_components());
  TransformerModel model(tiny_gemma(kCacheVocab, at::kFloat), choice.factory(KvFormat::kNative));
  const std::vector<Token> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  (void)model.forward({.tokens = at::tensor(prompt, at::kInt)});
  std::vector<int64_t> path(prompt.size());
  std::iota(path.begin(), path.end(), 0);
  model.commit(path);
  const KvTrace before = *model.cache().trace();
  const std::vector<Token> draft = {3, 4, 5};
  (void)model.forward({.tokens = at::tensor(draft, at::kInt), .parents = {-1, 0, 0}});
  const KvTrace trace = *model.cache().trace() - before;
  EXPECT_EQ(before.forwards, 1);
  EXPECT_EQ(trace.forwards, 1);
  ASSERT_EQ(trace.layers.size(), 3U);
  int64_t all_keys = 0;
  for (size_t i = 0; i < trace.layers.size(); ++i) {
    const bool is_full = i == 1;
    EXPECT_EQ(before.layers[i].written, 10);
    EXPECT_EQ(before.layers[i].nodes, 10);
    EXPECT_EQ(keys_seen(before.layers[i]), is_full ? 55 : 15 + 5 * 6);
    const KvTrace::Layer& layer = trace.layers[i];
    EXPECT_EQ(layer.written, 3);
    EXPECT_EQ(layer.nodes, 3);
    EXPECT_EQ(keys_seen(layer), is_full ? 11 + 12 + 12 : 3 * 6);
    EXPECT_EQ(layer.keys[age_bucket(0)], 3) << "each node sees itself, and none of its siblings";
    EXPECT_EQ(layer.keys[age_bucket(2)], 6);
    EXPECT_NEAR(std::accumulate(layer.mass.begin(), layer.mass.end(), 0.0), 3.0, 1e-9);
    all_keys += keys_seen(layer);
  }
  ASSERT_EQ(trace.pages.size(), 1U);
  int64_t written = 0;
  int64_t read = 0;
  for (const KvTrace::Page& page : trace.pages.front()) {
    written += page.written;
    read += page.read;
  }
  EXPECT_EQ(written, 3 * 3);
  EXPECT_EQ(read, all_keys);
  EXPECT_EQ(trace.pages.front().front().written, 0) << "the first four tokens";
  EXPECT_EQ(trace.pages.front()[2].written, 3 * 2) << "slots 10 and 11";
}

/// The events of a trace's file.
std::vector<nlohmann::json> events_of(const std::filesystem::path& path) {
  std::vector<nlohmann::json> events;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    events.push_back(nlohmann::json::parse(line));
  }
  return events;
}

TEST(CachesTest, TheEventsOfATraceAddUpToIt) {
  const c10::InferenceMode guard;
  const Components all = builtin_components();
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "events.jsonl";
  const std::string text = fmt::format(
      "{{type: tracing, of: {{type: paged, page_size: 4, window_slack: 2}}, events: {}}}",
      path.string());
  TransformerModel model(tiny_gemma(kCacheVocab, at::kFloat),
                         parse_cache(text, all).factory(KvFormat::kNative));
  (void)model.extend_get_last_logits(std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  model.close(model.fork(0, 3));  // the next row takes its place and another name
  const RowId row = model.fork(0, 9);
  (void)model.forward(
      {.tokens = at::tensor({3, 4, 5}, at::kInt), .rows = {0, row, row}, .parents = {-1, -1, 0}});
  model.commit(std::vector<int64_t>{0, 1}, row);
  model.truncate(10, row);
  model.close(row);
  const KvTrace& trace = *model.cache().trace();
  KvTrace sums;
  sums.layers.resize(trace.layers.size());
  std::vector<double> mass(trace.layers.size());
  std::vector<std::string> changes;
  int64_t of_row = 0;
  double last = 0.0;
  for (const nlohmann::json& event : events_of(path)) {
    EXPECT_GE(event.at("seconds").get<double>(), last);
    last = event.at("seconds");
    const std::string name = event.at("event");
    if (name == "forward") {
      EXPECT_EQ(event.at("number"), ++sums.forwards);
    } else if (name == "write") {
      KvTrace::Layer& layer = sums.layers.at(event.at("layer"));
      layer.written += std::ssize(event.at("tokens"));
      for (const auto& token : event.at("tokens")) {
        EXPECT_EQ(token.at(3), token.at(1).get<int64_t>() % 4) << "a chain's slots follow";
        of_row += token.at(0) == row ? 1 : 0;
      }
    } else if (name == "read") {
      for (const auto& page : event.at("pages")) {
        mass.at(event.at("layer")) += page.at(2).get<double>();
      }
    } else {
      if (name == "fork") {
        EXPECT_EQ(event.at("from"), 0);
      }
      if (name == "commit") {
        EXPECT_EQ(event.at("path").size(), event.at("row") == row ? 2U : 10U);
      }
      changes.push_back(name + (event.contains("length") ? event.at("length").dump() : ""));
    }
  }
  EXPECT_EQ(sums.forwards, trace.forwards);
  EXPECT_EQ(of_row, 2 * std::ssize(mass));
  for (size_t i = 0; i < mass.size(); ++i) {
    EXPECT_EQ(sums.layers[i].written, trace.layers[i].written);
    EXPECT_NEAR(mass[i], static_cast<double>(trace.layers[i].nodes), 1e-4);
  }
  EXPECT_THAT(changes, testing::ElementsAre("begin", "commit10", "fork3", "close", "fork9",
                                            "commit11", "truncate10", "close"));
  // Another cache of the same choice, as of a run that goes on, overwrites nothing.
  const auto size = std::filesystem::file_size(path);
  TransformerModel next(tiny_gemma(kCacheVocab, at::kFloat),
                        parse_cache(text, all).factory(KvFormat::kNative));
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_EQ(events_of(path.parent_path() / "events.2.jsonl").size(), 1U);
}

/// Files of this program may have so many bytes while it lives, which stands for a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    (void)::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    (void)::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    (void)::setrlimit(RLIMIT_FSIZE, &before_);
    (void)std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

TEST(CachesTest, ATraceThatTheDiskHasNoRoomForEndsBeforeTheNextForward) {
  const c10::InferenceMode guard;
  const TemporaryFolder folder;
  const std::string text =
      fmt::format("{{type: tracing, events: {}}}", (folder.path() / "events.jsonl").string());
  TransformerModel model(tiny_gemma(kCacheVocab, at::kFloat),
                         parse_cache(text, builtin_components()).factory(KvFormat::kNative));
  std::string first;
  std::string next;
  {
    const FullDisk disk(500);
    first = error_message<Error>([&] {
      (void)model.extend_get_last_logits(std::vector<Token>{1, 2, 3});
    });
    next = error_message<Error>([&] { (void)model.extend_get_last_logits(std::vector<Token>{4}); });
  }
  EXPECT_EQ(first, "no error");
  EXPECT_THAT(next, AllOf(HasSubstr("events.jsonl"), HasSubstr("Make room on the disk")));
  EXPECT_EQ(model.length(), 3);
  EXPECT_EQ(model.pending(), 0);
}

TEST(CachesTest, ATraceIsAsLossyAsWhatItTraces) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("{type: tracing, of: {type: window}}"), HasSubstr("say so with lossy: true"));
  EXPECT_THAT(error("{type: tracing, lossy: true}"), HasSubstr("are exact"));
  EXPECT_THAT(error("{type: tracing, of: {type: radox}}"), HasSubstr("unknown type 'radox'"));
  for (const char* key : {"format: q8", "rotation: hadamard", "lossy: true"}) {
    const std::string name(key, std::string(key).find(':'));
    EXPECT_THAT(error(fmt::format("{{type: tracing, of: {{type: paged, {}}}}}", key)),
                AllOf(HasSubstr("cache.of." + name + ": belongs beside 'of', not under it"),
                      testing::Not(HasSubstr("unknown key"))));
  }
  const CacheChoice choice = parse_cache("{type: tracing, format: q4, lossy: true}", all);
  TransformerModel model(tiny_gemma(kCacheVocab, at::kFloat), choice.factory(KvFormat::kNative));
  EXPECT_EQ(model.cache().view(0).format, KvFormat::kQ4);
}

TEST(CachesTest, OnlyTheTargetsCacheIsTraced) {
  const Components all = builtin_components();
  ModelOptions options;
  options.threads = at::get_num_threads();
  options.cache = parse_cache("{type: tracing, of: {type: window, recent: 5}, lossy: true}", all);
  ModelLoader loader(options);
  const std::filesystem::path folder = test_data("gemma3-a");
  const auto target = loader.load(folder);
  EXPECT_NE(target->cache().trace(), nullptr);
  const auto of_head =
      loader.kv_store()(std::vector<LayerKv>{LayerKv{.kv_heads = 1, .head_dim = 8}},
                        {.dtype = at::kFloat, .max_length = 16});
  EXPECT_EQ(of_head->trace(), nullptr);
  EXPECT_EQ(of_head->view(0).window, 5) << "the cache that is wrapped";
  BuildContext context{.target = *target, .models = loader, .cost_curve = {}};
  ModelCatalog models;
  const ConfigNode node(
      parse_yaml("{type: draft_model, weights: " + folder.string() + "}", "test", false),
      std::make_shared<ConfigErrors>());
  const RunPlan plan{.components = all, .models = models, .sampling = SamplingParams()};
  const auto drafter = all.drafters.prepare(node, plan)(context);
  const auto* draft = dynamic_cast<const TransformerModel*>(context.draft_model);
  ASSERT_NE(draft, nullptr);
  EXPECT_EQ(draft->cache().trace(), nullptr);
}

}  // namespace
}  // namespace specdec
