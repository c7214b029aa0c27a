#include "core/formats/tokenizer_config.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tokenizer_fixture.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

TokenizerConfig parsed(const char* text) { return parse_tokenizer_config(text, "c.json"); }

TEST(TokenizerConfigTest, PiecesAreTextsOrObjectsWithTheirText) {
  const auto config = parsed(R"({"bos_token": "<s>", "eos_token": {"content": "</s>"},
                                 "pad_token": null, "add_bos_token": true})");
  EXPECT_EQ(config.pieces,
            (std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  EXPECT_EQ(config.chat_template, "");
  EXPECT_EQ(config.adds_bos, true);
  EXPECT_EQ(parsed("{}").adds_bos, std::nullopt);
}

TEST(TokenizerConfigTest, OfSeveralTemplatesTheDefault) {
  EXPECT_EQ(parsed(R"({"chat_template": "a"})").chat_template, "a");
  EXPECT_EQ(parsed(R"({"chat_template": [{"name": "tool_use", "template": "b"},
                                         {"name": "default", "template": "c"}]})")
                .chat_template,
            "c");
}

TEST(TokenizerConfigTest, MistakesNameFileAndKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "c.json:1:1"},
      {"{", "c.json:1:2"},
      {"[]", "c.json: it must hold a JSON object"},
      {R"({"bos_token": 2})", "c.json: 'bos_token' must be a piece's text"},
      {R"({"eos_token": {"content": 2}})", "c.json: 'eos_token' must be a piece's text"},
      {R"({"add_bos_token": 1})", "c.json: 'add_bos_token' must be true or false"},
      {R"({"bos_token": {"content": "<s>", "lstrip": 1}})",
       "c.json: 'bos_token': \"lstrip\" must be true or false, but is 1."},
      {R"({"cls_token": {"content": "<s>", "special": "no"}})",
       "c.json: 'cls_token': \"special\" must be true or false, but is \"no\"."},
      {R"({"unk_token": 3})", "c.json: 'unk_token' must be a piece's text"},
      {R"({"mask_token": {}})", "c.json: 'mask_token' must be a piece's text"},
      {R"({"additional_special_tokens": "<s>"})",
       "c.json: 'additional_special_tokens' must be a list of pieces"},
      {R"({"additional_special_tokens": ["<s>", 3]})",
       "c.json: 'additional_special_tokens' must be a piece's text"},
      {R"({"additional_special_tokens": [{"content": "<s>", "normalized": []}]})",
       "c.json: 'additional_special_tokens': \"normalized\" must be true or false, but is a list."},
      {R"({"chat_template": {}})", "c.json: 'chat_template' must be a text, or a list"},
      {R"({"chat_template": ["a"]})", "c.json: 'chat_template' must be a text, or a list"},
      {R"({"chat_template": [{"name": "rag", "template": "a"}]})",
       "c.json: 'chat_template' is a list of templates none of which is called \"default\""},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(error_message<WeightsError>([&, text = text] { (void)parsed(text); }),
                HasSubstr(expected))
        << text;
  }
}

// Whatever kind of tokenizer they lie beside.
TEST(TokenizerConfigTest, TheFilesBesideATokenizerAreRead) {
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    const TemporaryFolder folder;
    folder.write(name, tokenizer_fixture(name));
    folder.write("tokenizer_config.json", R"({"chat_template": "a"})");
    EXPECT_EQ(load_tokenizer(folder.path())->chat_template(), "a");
    folder.write("chat_template.jinja", "b");
    EXPECT_EQ(load_tokenizer(folder.path())->chat_template(), "b");
    folder.write("tokenizer_config.json", "{");
    EXPECT_THAT(error_message<WeightsError>([&] { (void)load_tokenizer(folder.path()); }),
                HasSubstr("tokenizer_config.json:1:2"));
  }
}

// As of a download whose files were cleared away: it is not that there is no such file.
TEST(TokenizerConfigTest, ALinkToNothingIsNotAnAbsentFile) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "chat_template.json"}) {
    const TemporaryFolder folder;
    EXPECT_EQ(read_tokenizer_config(folder.path()).chat_template, "");
    std::filesystem::create_symlink("/nowhere/blob", folder.path() / name);
    EXPECT_THAT(
        error_message<WeightsError>([&] { (void)read_tokenizer_config(folder.path()); }),
        HasSubstr(std::string(name) + ": cannot read: it is a link to /nowhere/blob, which is"));
  }
}

// transformers' tokenizers read the first two, its processors the last, which are of old.
TEST(TokenizerConfigTest, TemplatesCountInTransformersOrder) {
  const TemporaryFolder folder;
  const auto read = [&folder] {
    const TokenizerConfig config = read_tokenizer_config(folder.path());
    const auto name = std::filesystem::path(config.chat_template_file).filename().string();
    return config.chat_template + " of " + name;
  };
  EXPECT_EQ(read(), " of ");
  folder.write("chat_template.json", R"({"chat_template": "a"})");
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(read(), "a of chat_template.json");
  folder.write("tokenizer_config.json", R"({"chat_template": "b"})");
  EXPECT_EQ(read(), "b of tokenizer_config.json");
  folder.write("chat_template.jinja", "c");
  EXPECT_EQ(read(), "c of chat_template.jinja");
  EXPECT_EQ(load_tokenizer([&] {
              folder.write("tokenizer.model", tokenizer_fixture("tokenizer.model"));
              return folder.path();
            }())
                ->chat_template_file(),
            (folder.path() / "chat_template.jinja").string());
}

TEST(TokenizerConfigTest, AProcessorsTemplateIsAText) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"{", "chat_template.json:1:2: not valid JSON"},
      {"[]", "chat_template.json: should hold a JSON object"},
      {R"({"chat_template": 3})", "chat_template.json: 'chat_template' must be a text, or a list"}};
  for (const auto& [text, expected] : cases) {
    folder.write("chat_template.json", text);
    EXPECT_THAT(error_message<WeightsError>([&] { (void)read_tokenizer_config(folder.path()); }),
                HasSubstr(expected))
        << text;
  }
  const std::pair<const char*, const char*> read[] = {
      {"{}", ""},
      {R"({"chat_template": null})", ""},
      {R"({"chat_template": {"default": "a", "tool_use": "b"}})", "a"}};
  for (const auto& [text, expected] : read) {
    folder.write("chat_template.json", text);
    EXPECT_EQ(read_tokenizer_config(folder.path()).chat_template, expected) << text;
  }
}

TEST(TokenizerConfigTest, AChatTemplateIsATextThatIsNotEmpty) {
  const TemporaryFolder folder;
  const auto complaint = [&folder](std::string_view bytes) {
    folder.write("chat_template.jinja", bytes);
    return error_message<WeightsError>([&] { (void)read_tokenizer_config(folder.path()); });
  };
  EXPECT_THAT(complaint(""), HasSubstr("chat_template.jinja: is empty. Download"));
  EXPECT_THAT(complaint("\x1f\x8b gzip"), HasSubstr("chat_template.jinja: is no chat template"));
}

TEST(TokenizerConfigTest, AddBosTokenCountsWhereTheTokenizersFileDoesNotSay) {
  auto json = nlohmann::json::parse(tokenizer_fixture("tokenizer.json"));
  const std::string says = json.dump();
  json["post_processor"] = nullptr;
  const std::string silent = json.dump();
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}};
  const std::string denies = json.dump();
  const auto adds = [](const char* name, const std::string& text, const char* config) {
    const TemporaryFolder folder;
    folder.write(name, text);
    folder.write("tokenizer_config.json", config);
    return load_tokenizer(folder.path())->adds_bos();
  };
  const char* configs[] = {"{}", R"({"add_bos_token": true})", R"({"add_bos_token": false})"};
  for (const char* config : configs) {
    EXPECT_TRUE(adds("tokenizer.json", says, config)) << config;
    EXPECT_EQ(adds("tokenizer.json", silent, config), config == configs[1]) << config;
    EXPECT_FALSE(adds("tokenizer.json", denies, config)) << config;
    EXPECT_EQ(adds("tokenizer.model", tokenizer_fixture("tokenizer.model"), config),
              config != configs[2])
        << config;
  }
}

// The number of entries decides which pieces there are.
TEST(TokenizerConfigTest, AVocabularySizeOfTheModelsConfigIsANumber) {
  const TemporaryFolder folder;
  folder.write("tokenizer.model", tokenizer_fixture("tokenizer.model"));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"time_step_limit": [0.0, Infinity]})", "no error"},  // as transformers wrote it
      {R"({"vocab_size": "600"})", "'vocab_size' should be a whole number, but is \"600\"."},
      {R"({"text_config": {"vocab_size": -1}})",
       "'vocab_size' should be a whole number, but is -1."},
      {R"({"text_config": {}})", "no error"},
      {R"({"vocab_size": null})", "no error"}};
  for (const auto& [text, expected] : cases) {
    folder.write("config.json", text);
    EXPECT_THAT(error_message<WeightsError>([&] { (void)load_tokenizer(folder.path()); }),
                HasSubstr(expected))
        << text;
  }
}

TEST(TokenizerConfigTest, ItsEndsCountBeforeTheTokenizersOwn) {
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    const TemporaryFolder folder;
    folder.write(name, tokenizer_fixture(name));
    folder.write("config.json", R"({"vocab_size": 600})");  // has no place for a new <bos>
    const auto own = load_tokenizer(folder.path());
    folder.write("tokenizer_config.json",
                 R"({"bos_token": "<not there>", "eos_token": "<end_of_turn>"})");
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->bos(), own->bos());
    EXPECT_NE(tokenizer->eos(), own->eos());
    EXPECT_EQ(tokenizer->eos(), own->find_piece("<end_of_turn>"));
  }
}

}  // namespace
}  // namespace specdec
