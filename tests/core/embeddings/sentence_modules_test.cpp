#include "core/embeddings/sentence_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// A folder of sentence-transformers as versions before 5.2 wrote it, without its model.
class ModulesFolder {
 public:
  ModulesFolder() {
    write("modules.json", modules);
    write("1_Pooling/config.json", {{"word_embedding_dimension", 4},
                                    {"pooling_mode_cls_token", false},
                                    {"pooling_mode_mean_tokens", true},
                                    {"include_prompt", false}});
    write("2_Dense/config.json", {{"in_features", 4},
                                  {"out_features", 8},
                                  {"bias", false},
                                  {"activation_function", "torch.nn.modules.linear.Identity"}});
    write("config_sentence_transformers.json",
          {{"prompts", {{"query", "find: "}, {"document", "text: "}}},
           {"default_prompt_name", nullptr}});
  }
  void write(const std::string& name, const json& value) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, value.dump());
  }
  SentenceModules read() const { return read_sentence_modules(folder_.path()); }
  std::string complaint() const {
    return error_message<WeightsError>([this] { (void)read(); });
  }
  const std::filesystem::path& path() const { return folder_.path(); }

  json modules = {{{"idx", 0}, {"path", ""}, {"type", "sentence_transformers.models.Transformer"}},
                  {{"path", "1_Pooling"}, {"type", "sentence_transformers.models.Pooling"}},
                  {{"path", "2_Dense"}, {"type", "sentence_transformers.models.Dense"}},
                  {{"path", "3_Normalize"}, {"type", "sentence_transformers.models.Normalize"}}};

 private:
  TemporaryFolder folder_;
};

TEST(SentenceModulesTest, ReadsWhatTheLibraryWritesToday) {
  const auto folder = test_data("embeddinggemma-a");
  const SentenceModules modules = read_sentence_modules(folder);
  EXPECT_EQ(modules.model, folder);
  EXPECT_THAT(modules.pooling, ElementsAre(Pooling::kMean));
  EXPECT_TRUE(modules.pools_prompt);
  ASSERT_EQ(modules.dense.size(), 2);
  EXPECT_EQ(modules.dense[0].activation, DenseActivation::kIdentity);
  EXPECT_FALSE(modules.dense[0].bias);
  EXPECT_EQ(modules.dense[1].in, 32);
  EXPECT_EQ(modules.dense[1].out, 12);
  EXPECT_EQ(modules.dense[1].activation, DenseActivation::kTanh);
  EXPECT_TRUE(modules.normalizes);
  EXPECT_EQ(modules.prompt("query"), "task: search result | query: ");
  EXPECT_EQ(modules.default_task, std::nullopt);
  EXPECT_EQ(modules.max_length, 64);
}

TEST(SentenceModulesTest, ReadsOlderFolders) {
  const ModulesFolder folder;
  folder.write("sentence_bert_config.json", {{"max_seq_length", 256}, {"do_lower_case", false}});
  folder.write("tokenizer_config.json", {{"model_max_length", 1e30}});
  const SentenceModules modules = folder.read();
  EXPECT_THAT(modules.pooling, ElementsAre(Pooling::kMean));
  EXPECT_FALSE(modules.pools_prompt);
  EXPECT_EQ(modules.dense.size(), 1);
  EXPECT_EQ(modules.max_length, 256);
  folder.write("1_Pooling/config.json",
               {{"pooling_mode_cls_token", true}, {"pooling_mode_max_tokens", true}});
  EXPECT_THAT(folder.read().pooling, ElementsAre(Pooling::kCls, Pooling::kMax));
  folder.write("1_Pooling/config.json", {{"pooling_mode", {"lasttoken", "mean"}}});
  EXPECT_THAT(folder.read().pooling, ElementsAre(Pooling::kLast, Pooling::kMean));
}

TEST(SentenceModulesTest, TheModelMayLieInAFolderOfItsOwn) {
  ModulesFolder folder;
  folder.modules[0]["path"] = "0_Transformer";
  folder.write("modules.json", folder.modules);
  EXPECT_EQ(folder.read().model, folder.path() / "0_Transformer");
}

TEST(SentenceModulesTest, PlainFoldersHaveNoModules) {
  const SentenceModules modules = read_sentence_modules(test_data("gemma3-a"));
  EXPECT_EQ(modules.model, test_data("gemma3-a"));
  EXPECT_TRUE(modules.pooling.empty());
  EXPECT_FALSE(modules.normalizes);
  EXPECT_THAT(error_message<ConfigError>([&] { (void)modules.prompt("query"); }),
              HasSubstr("has no prompts"));
}

TEST(SentenceModulesTest, UnknownTasksAreAnsweredWithTheKnownOnes) {
  const ModulesFolder folder;
  EXPECT_EQ(folder.read().prompt("query"), "find: ");
  EXPECT_THAT(error_message<ConfigError>([&] { (void)folder.read().prompt("Query"); }),
              HasSubstr("unknown task 'Query'; known: document, query"));
  folder.write("config_sentence_transformers.json",
               {{"prompts", {{"query", "find: "}}}, {"default_prompt_name", "query"}});
  EXPECT_EQ(folder.read().default_task, "query");
}

TEST(SentenceModulesTest, MistakesNameFileAndKey) {
  ModulesFolder folder;
  const auto with_type = [&folder](size_t index, const char* type) {
    json modules = folder.modules;
    modules[index]["type"] = type;
    folder.write("modules.json", modules);
    return folder.complaint();
  };
  EXPECT_THAT(with_type(2, "sentence_transformers.models.LSTM"),
              HasSubstr("modules.json: 'type' is 'LSTM' (module 2); supported: Transformer"));
  EXPECT_THAT(with_type(0, "x.Pooling"), HasSubstr("(module 0)"));
  EXPECT_THAT(with_type(1, "x.Normalize"), HasSubstr("(module 1)"));
  json outside = folder.modules;
  outside[1]["path"] = "../1_Pooling";
  folder.write("modules.json", outside);
  EXPECT_THAT(folder.complaint(), HasSubstr("leads out of the folder"));
  json here = folder.modules;
  here[1].erase("path");
  folder.write("modules.json", here);
  EXPECT_THAT(folder.complaint(), HasSubstr("modules.json: 'path' is missing or empty, but a mod"));
  folder.write("modules.json", json::array());
  EXPECT_THAT(folder.complaint(), HasSubstr("should hold a list of modules"));
  folder.write("modules.json", folder.modules);
  folder.write("2_Dense/config.json",
               {{"in_features", 4},
                {"out_features", 8},
                {"activation_function", "torch.nn.modules.activation.SiLU"}});
  EXPECT_THAT(folder.complaint(), HasSubstr("supported: Identity, Tanh, ReLU, GELU, Sigmoid"));
  folder.write("2_Dense/config.json", {{"out_features", 8}});
  EXPECT_THAT(folder.complaint(), HasSubstr("2_Dense/config.json: 'in_features' is missing"));
  folder.write("1_Pooling/config.json", {{"pooling_mode", "median"}});
  EXPECT_THAT(folder.complaint(), HasSubstr("'pooling_mode' names an unknown pooling 'median'"));
  folder.write("1_Pooling/config.json", {{"pooling_mode", json::array()}});
  EXPECT_THAT(folder.complaint(), HasSubstr("'pooling_mode' is an empty list"));
  folder.write("1_Pooling/config.json", {{"pooling_mode", "mean"}});
  folder.write("2_Dense/config.json", {{"in_features", 4}, {"out_features", 8}});
  folder.write("sentence_bert_config.json", {{"max_seq_length", 0.5}});
  EXPECT_THAT(folder.complaint(), HasSubstr("'max_seq_length' should be a whole number"));
}

}  // namespace
}  // namespace specdec
