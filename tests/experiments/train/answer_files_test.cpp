// What training says of a folder of answers that was edited, or of which a part was lost.
#include "experiments/train/answer_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "experiments/train/answer_set.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kHidden = 2, kLayers = 3, kTokens = 8;

class AnswerFilesTest : public testing::Test {
 protected:
  AnswerFilesTest() {
    target_.fingerprint = "abc";
    target_.config.vocab_size = kTokens;
    target_.config.hidden_size = kHidden;
    target_.config.num_layers = kLayers;
    identity_ = {{"target", "abc"}, {"layers", {0, 2}}};
    for (int64_t i = 0; i < 4; ++i) {
      lines_.push_back({{"prompt", i},
                        {"own", true},
                        {"end", "end"},
                        {"temperature", 0.0},
                        {"answer", 1},
                        {"row", 2 * i},
                        {"log_sums", {0.5, 0.5}},
                        {"tokens", {i, 1, 2}}});
    }
    write();
  }

  void write() const {
    folder_.write("answers.json", json_text(identity_));
    std::string text;
    for (const json& line : lines_) {
      text += json_text(line) + "\n";
    }
    folder_.write("answers.jsonl", text);
    folder_.write("features.bf16", std::string(size_t{8} * 3 * kHidden * 2, '\0'));
  }

  /// What loading says; "no error" where the answers are as they should be.
  std::string complaint() const {
    return error_message<Error>([&] {
      const AnswerSelection choice{.folder = folder_.path()};
      AnswerSet(folder_.path(), require_answers(choice, {}), target_, 0.25);
    });
  }
  std::string with_identity(const char* key, const json& value) {
    const json before = std::exchange(identity_[key], value);
    write();
    identity_[key] = before;
    return complaint();
  }
  std::string with_line(const char* key, const json& value) {
    const json before = std::exchange(lines_[1][key], value);
    write();
    lines_[1][key] = before;
    return complaint();
  }

  TransformerTensors target_;
  json identity_;
  std::vector<json> lines_;
  TemporaryFolder folder_;
};

TEST_F(AnswerFilesTest, WholeFoldersAreRead) {
  EXPECT_EQ(complaint(), "no error");
  const AnswerIdentity identity = parse_answer_identity(folder_.path());
  EXPECT_EQ(identity.target, "abc");
  EXPECT_EQ(identity.layers, (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(identity.suppressed.empty());
}

TEST_F(AnswerFilesTest, AnIdentityIsReadByType) {
  EXPECT_THAT(with_identity("layers", 1), HasSubstr("answers.json: 'layers' must be a list"));
  EXPECT_THAT(with_identity("layers", {0, 3}),
              HasSubstr("answers.json names layer 3, but the target has 3 layers"));
  EXPECT_THAT(with_identity("layers", {-1}), HasSubstr("'layers' must hold only whole numbers"));
  EXPECT_THAT(with_identity("target", 3), HasSubstr("answers.json: 'target' must be"));
  EXPECT_THAT(with_identity("suppressed", "x"), HasSubstr("answers.json: 'suppressed' must be"));
  folder_.write("answers.json", "{}");
  EXPECT_THAT(complaint(),
              HasSubstr("answers.json: the key 'target' is missing; remove the folder"));
  folder_.write("answers.json", "{");
  EXPECT_THAT(complaint(), HasSubstr("answers.json:1:2: not valid JSON"));
}

TEST_F(AnswerFilesTest, AnAnswerFitsItsTargetAndItsFeatures) {
  EXPECT_EQ(with_line("row", 6), "no error");
  EXPECT_THAT(with_line("row", 7), HasSubstr("prompt 1 has its features from row 7 on, of 8 rows"));
  EXPECT_THAT(with_line("tokens", {1, 8, 2}), HasSubstr("holds the token 8, and the target has 8"));
  EXPECT_THAT(
      with_line("answer", 2),
      HasSubstr("answers.jsonl:2: 'log_sums' holds 2 numbers for the 1 tokens of the answer"));
  EXPECT_THAT(with_line("log_sums", json::array()), HasSubstr("'log_sums' holds 0 numbers"));
  lines_[1]["log_sums"] = {0.5, 0.5, 0.5};
  EXPECT_THAT(with_line("answer", 0),
              HasSubstr("answers.jsonl:2: 'answer' is 0: there is no prompt"));
}

TEST_F(AnswerFilesTest, MissingFeaturesAreNamed) {
  std::filesystem::remove(folder_.path() / "features.bf16");
  EXPECT_THAT(complaint(), HasSubstr("features.bf16: is missing; remove the folder"));
}

}  // namespace
}  // namespace specdec
