#include "experiments/components/machine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const MachineKind kMachine = {.processor = "A CPU (avx2)", .cores = 4};

MachineProfile saved_profile() {
  return {.processor = kMachine.processor,
          .cores = kMachine.cores,
          .prefill_threads = 4,
          .decode_threads = 2,
          .page_size = 32,
          .dtype = "bfloat16",
          .kv_dtype = "bfloat16",
          .drafts = {{"{type: prompt_lookup}", 7}}};
}

class MachineProfileTest : public testing::Test {
 protected:
  ProfileDefaults defaults(const MachineKind& machine = kMachine) const {
    return {folder_.path(), machine, components_};
  }
  /// The mistakes of a file with this text.
  std::string complaint(const std::string& text) const {
    folder_.write("specdec-profile.yaml", text);
    return error_message<ConfigError>([this] { (void)defaults(); });
  }

  const TemporaryFolder folder_;
  const std::filesystem::path file_ = machine_profile_file(folder_.path());
  const Components components_ = builtin_components();
};

TEST_F(MachineProfileTest, IsReadAsItWasWritten) {
  const MachineProfile written = saved_profile();
  write_machine_profile(file_, written);
  const MachineProfile read = read_machine_profile(file_, components_);
  EXPECT_EQ(read.processor, written.processor);
  EXPECT_EQ(read.cores, 4);
  EXPECT_EQ(read.prefill_threads, 4);
  EXPECT_EQ(read.decode_threads, 2);
  EXPECT_EQ(read.page_size, 32);
  EXPECT_EQ(read.dtype, "bfloat16");
  EXPECT_EQ(read.kv_dtype, "bfloat16");
  ASSERT_EQ(read.drafts.size(), 1U);
  EXPECT_EQ(read.drafts[0].drafter, "{type: prompt_lookup}");
  EXPECT_EQ(read.drafts[0].draft_length, 7);
  MachineProfile least;
  least.processor = "x";
  least.cores = 1;
  write_machine_profile(file_, least);
  EXPECT_THAT(read_machine_profile(file_, components_).drafts, IsEmpty());
  EXPECT_EQ(read_machine_profile(file_, components_).decode_threads, 0);
}

TEST_F(MachineProfileTest, LiesBesideTheModel) {
  EXPECT_EQ(file_, folder_.path() / "specdec-profile.yaml");
  const auto gguf = folder_.write("model.gguf", "GGUF");
  EXPECT_EQ(machine_profile_file(gguf), folder_.path() / "model.gguf.specdec-profile.yaml");
}

TEST_F(MachineProfileTest, GivesWhatIsLeftOpen) {
  write_machine_profile(file_, saved_profile());
  ProfileDefaults profile = defaults();
  EXPECT_EQ(profile.text(), "");  // nothing was taken yet
  ModelOptions options;
  profile.take_all(options, components_);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    EXPECT_EQ(options.threads, 2);
    EXPECT_EQ(options.prefill_threads, 4);
    EXPECT_EQ(options.thread_reason, file_.string());
    EXPECT_THAT(profile.text(), HasSubstr("threads 2 for decoding, 4 for prefills"));
  }
  EXPECT_EQ(options.dtype, "bfloat16");
  EXPECT_EQ(options.kv_dtype, "bfloat16");
  EXPECT_THAT(options.cache.yaml, HasSubstr("page_size: 32"));
  EXPECT_THAT(profile.text(), AllOf(HasSubstr(file_.string() + ": gives "),
                                    HasSubstr("page_size 32, dtype bfloat16, kv_dtype bfloat16"),
                                    HasSubstr("--no-machine-profile")));
}

TEST_F(MachineProfileTest, WhatTheUserSaysCountsMore) {
  write_machine_profile(file_, saved_profile());
  ProfileDefaults profile = defaults();
  ModelOptions options{.dtype = "float32",
                       .kv_dtype = "float32",
                       .cache = parse_cache("contiguous", components_),
                       .threads = 1};
  profile.take_all(options, components_);
  EXPECT_EQ(options.threads, 1);
  EXPECT_EQ(options.prefill_threads, 0);
  EXPECT_EQ(options.dtype, "float32");
  EXPECT_EQ(options.kv_dtype, "float32");
  EXPECT_THAT(options.cache.yaml, HasSubstr("contiguous"));
  EXPECT_EQ(profile.text(), "");
}

TEST_F(MachineProfileTest, OfAnotherMachineGivesNothingAndSaysSo) {
  write_machine_profile(file_, saved_profile());
  for (const auto& [machine, reason] :
       {std::pair{MachineKind{.processor = "B", .cores = 4}, "and this is B with 4"},
        std::pair{MachineKind{.processor = kMachine.processor, .cores = 2}, "measured on A CPU"},
        std::pair{MachineKind{.processor = kMachine.processor, .cores = 4, .device = "cuda"},
                  "it is of the CPU, and this runs on 'cuda'"}}) {
    ProfileDefaults profile = defaults(machine);
    ModelOptions options;
    profile.take_all(options, components_);
    EXPECT_EQ(options.threads, 0);
    EXPECT_EQ(options.dtype, "");
    EXPECT_EQ(options.cache.yaml, "");
    EXPECT_THAT(profile.text(),
                AllOf(HasSubstr(file_.string() + ": not used: "), HasSubstr(reason)));
  }
}

TEST_F(MachineProfileTest, UnknownDraftersAreRefused) {
  EXPECT_THAT(complaint("processor: x\ncores: 1\ndrafts:\n  - {drafter: {type: prompt_lokup}, "
                        "draft_length: 2}\n"),
              HasSubstr("drafts[0].drafter: unknown type 'prompt_lokup'; did you mean"));
}

TEST_F(MachineProfileTest, NoFileIsNoProfile) {
  EXPECT_EQ(defaults().text(), "");
  EXPECT_EQ(ProfileDefaults().text(), "");
}

TEST_F(MachineProfileTest, KnowsTheLengthOfADrafterItMeasured) {
  std::filesystem::create_directory(folder_.path() / "draft");
  MachineProfile written = saved_profile();
  const auto weights = std::filesystem::canonical(folder_.path() / "draft").string();
  const auto tree = parse_yaml("{weights: " + weights + ", type: draft_model}", "test", false);
  written.drafts.push_back({drafter_text(*tree, {}), 3});
  write_machine_profile(file_, written);
  ProfileDefaults profile = defaults();
  const auto length = [&](const std::string& drafter) {
    return profile.take_draft_length(*parse_yaml(drafter, "test", false), folder_.path());
  };
  EXPECT_EQ(length("{type: prompt_lookup}"), 7);
  EXPECT_EQ(length("{type: draft_model, weights: draft}"), 3);  // another way to say it
  EXPECT_EQ(length("{type: draft_model, weights: other}"), std::nullopt);
  EXPECT_EQ(length("{type: prompt_lookup, max_ngram: 2}"), std::nullopt);
  EXPECT_THAT(profile.text(), HasSubstr("draft_length 7 with {type: prompt_lookup}"));
}

TEST_F(MachineProfileTest, MistakesNameFileLineAndKey) {
  const std::string valid = "processor: x\ncores: 4\n";
  const std::string file = file_.string();
  EXPECT_EQ(complaint(valid), "no error");
  EXPECT_THAT(complaint("cores: 4\n"), AllOf(HasSubstr(file), HasSubstr("processor")));
  EXPECT_THAT(complaint(valid + "pages: 4\n"),
              AllOf(HasSubstr(file + ":3"), HasSubstr("unknown key")));
  EXPECT_THAT(complaint(valid + "threads: {prefill: 2}\n"),
              HasSubstr(file + ":3: threads: the key 'decode' is missing"));
  EXPECT_THAT(complaint(valid + "threads: {prefill: 0, decode: 1}\n"),
              HasSubstr("threads.prefill"));
  EXPECT_THAT(complaint(valid + "page_size: many\n"), HasSubstr("page_size"));
  EXPECT_THAT(complaint(valid + "dtype: float8\n"), HasSubstr("unknown dtype 'float8'"));
  EXPECT_THAT(complaint(valid + "kv_dtype: int8\n"), HasSubstr("unknown kv_dtype 'int8'"));
  EXPECT_THAT(complaint(valid + "drafts: [{drafter: prompt_lookup, draft_length: 2}]\n"),
              HasSubstr("a drafter's config"));
  EXPECT_THAT(complaint(valid + "drafts: [{drafter: {type: x}}]\n"), HasSubstr("draft_length"));
  EXPECT_THAT(complaint("processor: [\n"), HasSubstr(file));
}

}  // namespace
}  // namespace specdec
