// `profile --save`, and the commands that read the file which it writes.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/formats/strict_json.h"
#include "experiments/components/machine_profile.h"
#include "experiments/metrics/environment.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class MachineProfileCliTest : public testing::Test {
 protected:
  MachineProfileCliTest() : model_((folder_.path() / "model.gguf").string()) {
    std::filesystem::copy_file(test_data("gguf/llama-q4_1.gguf"), model_);
  }
  ~MachineProfileCliTest() override { at::set_num_threads(threads_); }

  CliResult profile(std::vector<std::string> more) const {
    std::vector<std::string> all = {"profile",   model_, "--contexts", "8",
                                    "--repeats", "1",    "--lengths",  "1,2"};
    all.insert(all.end(), more.begin(), more.end());
    return cli(all);
  }
  CliResult generate(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {
        "generate",         model_,
        "--tokens",         "2,5,7",
        "--max-new-tokens", "8",
        "--strategy",       "{type: speculative, drafter: {type: prompt_lookup}}"};
    all.insert(all.end(), more.begin(), more.end());
    return cli(all);
  }
  static MachineProfile threads_and_pages() {
    MachineProfile profile;
    profile.prefill_threads = 2;
    profile.decode_threads = 1;
    profile.page_size = 32;
    return profile;
  }
  /// Writes the file for this machine, or one with another processor.
  void write(MachineProfile profile) const {
    const Environment machine = read_environment();
    profile.processor = profile.processor.empty() ? machine.cpu : profile.processor;
    profile.cores = machine.cores;
    write_machine_profile(file_, profile);
  }

  const int threads_ = at::get_num_threads();
  const TemporaryFolder folder_;
  const std::string model_;
  const std::filesystem::path file_ = machine_profile_file(model_);
};

TEST_F(MachineProfileCliTest, SavesWhatGenerateReads) {
  const auto text = folder_.write("text.txt", "the cat sat on the mat, the cat sat on");
  const std::string plain = generate({"--quiet"}).out;
  const auto saved = profile({"--save", "--kv-dtype", "float32", "--draft", "{type: prompt_lookup}",
                              "--prompt-file", text.string()});
  ASSERT_EQ(saved.code, 0) << saved.err;
  EXPECT_THAT(saved.out, AllOf(HasSubstr("threads of prefills: "), HasSubstr("page size: "),
                               HasSubstr("draft length with {type: prompt_lookup}"),
                               HasSubstr(file_.string() + ": written")));
  const MachineProfile found = read_machine_profile(file_, builtin_components());
  EXPECT_EQ(found.processor, read_environment().cpu);
  EXPECT_GE(found.prefill_threads, 1);
  EXPECT_EQ(found.dtype, "");  // nobody asked for one
  EXPECT_EQ(found.kv_dtype, "float32");
  ASSERT_EQ(found.drafts.size(), 1U);

  const auto used = generate();
  EXPECT_EQ(used.code, 0) << used.err;
  EXPECT_EQ(used.out, plain);
  EXPECT_THAT(used.err, AllOf(HasSubstr(file_.string() + ": gives "), HasSubstr("page_size "),
                              HasSubstr("draft_length ")));
  EXPECT_THAT(generate({"--no-machine-profile"}).err, Not(HasSubstr(file_.string())));
  EXPECT_THAT(generate({"--quiet"}).err, Not(HasSubstr(file_.string())));
}

TEST_F(MachineProfileCliTest, FlagsCountMore) {
  MachineProfile profile = threads_and_pages();
  profile.dtype = "bfloat16";
  write(profile);
  const auto used = generate({"--dtype", "float32", "--cache", "contiguous", "--threads", "1"});
  EXPECT_EQ(used.code, 0) << used.err;
  EXPECT_THAT(used.err, Not(HasSubstr(file_.string())));
  EXPECT_THAT(generate({"--dtype", "float32"}).err,
              AllOf(HasSubstr("page_size 32"), Not(HasSubstr("bfloat16"))));
}

/// Activations of a draft model need the blocks of the target's dtype, which a flag or the file
/// gives.
TEST_F(MachineProfileCliTest, ADraftModelSharesTheDtypeThatIsTaken) {
  const std::string model = (folder_.path() / "gemma").string();
  std::filesystem::copy(test_data("gemma3-a"), model);
  const std::string drafter = "{type: draft_model, weights: " + model + ", activations: int8}";
  const auto generate = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {
        "generate",         model, "--tokens",   "2,5,7",
        "--max-new-tokens", "4",   "--strategy", "{type: speculative, drafter: " + drafter + "}"};
    all.insert(all.end(), more.begin(), more.end());
    return cli(all);
  };
  const auto profile = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"profile", model,       "--contexts", "8",       "--repeats",
                                    "1",       "--lengths", "1",          "--draft", drafter};
    all.insert(all.end(), more.begin(), more.end());
    return cli(all);
  };
  const auto timed = profile({"--dtype", "int8"});
  EXPECT_EQ(timed.code, 0) << timed.err;
  for (const auto& refused : {profile({}), generate({})}) {
    EXPECT_EQ(refused.code, 2);
  }
  EXPECT_THAT(profile({}).err, HasSubstr("drafter.activations: "));
  MachineProfile saved = threads_and_pages();
  saved.dtype = "int8";
  saved.processor = read_environment().cpu;
  saved.cores = read_environment().cores;
  write_machine_profile(machine_profile_file(model), saved);
  const auto used = generate({});
  EXPECT_EQ(used.code, 0) << used.err;
  EXPECT_THAT(used.err, HasSubstr("dtype int8"));
  EXPECT_THAT(generate({"--no-machine-profile"}).err, HasSubstr("activations: "));
}

TEST_F(MachineProfileCliTest, AnotherProcessorsIsNotUsed) {
  MachineProfile profile = threads_and_pages();
  profile.processor = "some other processor";
  write(profile);
  const auto result = generate();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr(": not used: it was measured on some other processor"),
                                HasSubstr("profile " + model_ + " --save")));
}

TEST_F(MachineProfileCliTest, ADamagedFileIsAnError) {
  folder_.write(file_.filename().string(), "processor: x\ncores: 1\nspeed: 3\n");
  for (const char* command : {"generate", "chat"}) {
    const auto result = cli(command == std::string("chat")
                                ? std::vector<std::string>{"chat", model_}
                                : std::vector<std::string>{"generate", model_, "--tokens", "2"});
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(file_.string() + ":3"), HasSubstr("speed")));
  }
  const auto config =
      folder_.write("c.yaml", fmt::format("model: {{weights: {}}}\nprompts: {{file: p.jsonl}}\n"
                                          "strategies: [{{type: autoregressive}}]\n",
                                          model_));
  folder_.write("p.jsonl", "{\"tokens\": [2, 5, 9]}\n");
  const auto check = cli({"check", config.string()});
  EXPECT_EQ(check.code, 2);
  EXPECT_THAT(check.err, AllOf(HasSubstr(file_.string() + ":3"), HasSubstr("speed")));
  EXPECT_EQ(cli({"check", config.string(), "--no-machine-profile"}).code, 0);
}

TEST_F(MachineProfileCliTest, MisuseOfSaveIsAnError) {
  const auto complaint = [this](std::vector<std::string> more) {
    const auto result = profile(std::move(more));
    EXPECT_EQ(result.code, 2);
    EXPECT_FALSE(std::filesystem::exists(file_));
    return result.err;
  };
  EXPECT_THAT(complaint({"--save", "--random"}), HasSubstr("leave out --random"));
  EXPECT_THAT(complaint({"--save", "--draft", "{type: prompt_lookup}"}),
              HasSubstr("name one with --prompt-file"));
  EXPECT_THAT(complaint({"--prompt-file", model_}), HasSubstr("--save"));
}

TEST_F(MachineProfileCliTest, ARunRecordsWhatItTook) {
  MachineProfile profile = threads_and_pages();
  profile.dtype = "float32";
  profile.drafts.push_back({"{type: prompt_lookup}", 3});
  write(profile);
  folder_.write("p.jsonl", "{\"tokens\": [2, 5, 9, 5, 9]}\n");
  const auto config = folder_.write(
      "c.yaml", fmt::format("model: {{weights: {}}}\nprompts: {{file: p.jsonl}}\n"
                            "max_new_tokens: 4\nwarm_up: 0\nstrategies:\n"
                            "  - {{type: speculative, drafter: {{type: prompt_lookup}}}}\n",
                            model_));
  const auto out = folder_.path() / "out";
  const auto result = cli({"run", config.string(), "--out", out.string()});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(file_.string() + ": gives "));
  const json environment = json::parse(read_file(out / "environment.json"));
  EXPECT_THAT(environment["machine_profile"].get<std::string>(),
              AllOf(HasSubstr("page_size 32"), HasSubstr("draft_length 3")));
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    EXPECT_EQ(environment["threads"], 1);
    EXPECT_EQ(environment["prefill_threads"], 2);
    EXPECT_EQ(environment["thread_reason"], file_.string());
  }
  const std::string resolved = read_file(out / "config.yaml");
  EXPECT_THAT(resolved, AllOf(HasSubstr("dtype: float32"), HasSubstr("draft_length: 3")));
  EXPECT_THAT(result.out, HasSubstr(file_.string()));  // the report says it too

  const auto other = folder_.path() / "other";
  const auto without =
      cli({"run", config.string(), "--out", other.string(), "--no-machine-profile"});
  ASSERT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(json::parse(read_file(other / "environment.json"))["machine_profile"], "");
  EXPECT_THAT(read_file(other / "config.yaml"), HasSubstr("machine_profile: false"));
}

}  // namespace
}  // namespace specdec
