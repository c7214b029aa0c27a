// What `check` says of caches and memory limits is what `run` would say.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "core/error.h"
#include "experiments/run/experiment_config.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CacheCheckTest : public testing::Test {
 protected:
  CacheCheckTest() {
    folder_.write("p.jsonl", "{\"tokens\": [2, 5]}\n");
    config_ = folder_.write("c.yaml", fmt::format("model: {{weights: {}, cache: paged}}\n"
                                                  "prompts: {{file: p.jsonl}}\n"
                                                  "max_new_tokens: 4\n"
                                                  "strategies: [{{type: autoregressive}}]\n",
                                                  test_data("gemma3-a").string()));
  }

  CliResult check(const std::vector<std::string>& sets) const {
    std::vector<std::string> arguments = {"check", config_.string()};
    for (const std::string& set : sets) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return cli(arguments);
  }
  std::string refused(const std::vector<std::string>& sets) const {
    const CliResult result = check(sets);
    EXPECT_EQ(result.code, 2);
    return result.err;
  }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
  std::filesystem::path config_;
};

TEST_F(CacheCheckTest, TypesMayBeGivenAlone) {
  EXPECT_EQ(check({}).code, 0);
  EXPECT_EQ(check({"model.cache=contiguous"}).code, 0);
  EXPECT_EQ(check({"model.cache={type: tracing, of: contiguous}"}).code, 0);
  const auto drafts_over = [&](const std::string& cache) {
    return refused(
        {"strategies=[{type: speculative, drafter: {type: self, cache: " + cache + "}}]"});
  };
  EXPECT_THAT(drafts_over("paged"), HasSubstr("strategies[0].drafter.cache: is exact"));
  EXPECT_EQ(check({"strategies=[{type: speculative, drafter: {type: self, cache: window}}]"}).code,
            0);
  EXPECT_THAT(refused({"model.cache=pagd"}), HasSubstr("did you mean 'paged'?"));
  EXPECT_THAT(refused({"model.cache=[paged]"}), HasSubstr("expected a map, found a list"));
}

TEST_F(CacheCheckTest, AResolvedConfigHasTheWholeMap) {
  const ExperimentPlan plan = load_experiment(config_, {}, builtin_components());
  EXPECT_THAT(plan.yaml, HasSubstr("cache:\n    type: paged\n    max_pages: 0"));
}

TEST_F(CacheCheckTest, ALimitThatIsTooSmallIsFound) {
  EXPECT_THAT(refused({"model.memory_limit=5kB"}),
              AllOf(HasSubstr("model.memory_limit: the memory limit of"), HasSubstr("too small")));
  EXPECT_EQ(check({"model.memory_limit=700kB", "model.layer_file=" + file("layers")}).code, 0);
  EXPECT_EQ(check({"model.memory_limit=8GB"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(file("layers"))) << "nothing is left behind";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(CacheCheckTest, ALayerFileThatCannotBeIsFound) {
  const auto with_file = [&](const std::string& path) {
    return refused({"model.memory_limit=700kB", "model.layer_file=" + path});
  };
  folder_.write("text", "no layers of a model at all");
  EXPECT_THAT(with_file(file("text")),
              AllOf(HasSubstr("model.layer_file: "), HasSubstr("is no file of a model's layers")));
  EXPECT_THAT(with_file("/proc/layers"),
              AllOf(HasSubstr("model.layer_file: /proc/layers"), HasSubstr("cannot create")));
  EXPECT_THAT(with_file("/proc/a/b/layers"),
              HasSubstr("/proc/a/b/layers lies in no folder that is there"));
  EXPECT_EQ(check({"model.memory_limit=8GB", "model.layer_file=/proc/layers"}).code, 0)
      << "a model that fits needs no file";
}

TEST_F(CacheCheckTest, EventsThatCannotBeWrittenAreFound) {
  const auto with_events = [&](const std::string& path) {
    return check({"model.cache={type: tracing, events: " + path + "}"});
  };
  EXPECT_THAT(with_events("/proc/ev.jsonl").err,
              AllOf(HasSubstr("model.cache.events: /proc/ev.jsonl"), HasSubstr("cannot create")));
  EXPECT_THAT(with_events(folder_.path().string()).err,
              AllOf(HasSubstr("is a folder"), Not(HasSubstr("cannot"))));
  EXPECT_EQ(with_events(file("ev.jsonl")).code, 0);
  EXPECT_THAT(with_events(file("new/ev.jsonl")).err, HasSubstr("lies in no folder that is there"));
  EXPECT_EQ(check({"model.cache={type: tracing, events: " + file("ev.jsonl") + "}",
                   "strategies=[{type: beam_search, num_beams: 2}]"})
                .code,
            0);
  EXPECT_FALSE(std::filesystem::exists(file("ev.jsonl")));
  EXPECT_FALSE(std::filesystem::exists(file("new")));
}

TEST_F(CacheCheckTest, BeamsNeedARowEach) {
  const auto beams = [&](const std::string& cache, const std::string& strategy) {
    return check({"model.cache=" + cache, "strategies=[{type: " + strategy + "}]"});
  };
  const std::string four = "beam_search, num_beams: 4";
  EXPECT_THAT(
      beams("{type: contiguous, max_rows: 1}", four).err,
      AllOf(HasSubstr("strategies[0].num_beams: "), HasSubstr("holds 1 rows"), HasSubstr("not 5")));
  EXPECT_EQ(beams("{type: contiguous, max_rows: 4}", four).code, 2);
  EXPECT_EQ(beams("{type: contiguous, max_rows: 5}", four).code, 0);
  EXPECT_EQ(beams("{type: contiguous, max_rows: 1}", "autoregressive").code, 0);
  EXPECT_THAT(beams("{type: paged, max_pages: 4}", four).err, HasSubstr("not 5"));
  EXPECT_EQ(beams("{type: paged, max_pages: 5}", four).code, 0);
  EXPECT_EQ(beams("contiguous", four).code, 0) << "as many rows as memory holds";
  EXPECT_EQ(beams("{type: tracing, of: {type: contiguous, max_rows: 2}}", four).code, 2);
  EXPECT_EQ(beams("{type: tiered, memory_megabytes: 1, megabytes: 8}", four).code, 0);
  EXPECT_EQ(check({"model.max_length=20", "strategies=[{type: " + four + "}]"}).code, 0);
  const std::string drafting =
      "speculative_beam, num_beams: 4, draft_length: 2, drafter: {type: prompt_lookup}";
  EXPECT_EQ(beams("{type: contiguous, max_rows: 1}", drafting).code, 2);
}

}  // namespace
}  // namespace specdec
