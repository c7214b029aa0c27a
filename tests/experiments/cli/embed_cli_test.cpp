// `specdec embed`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/formats/strict_json.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kTinyEmbedder = test_data("embeddinggemma-a").string();

std::vector<json> json_lines(const std::string& text) {
  std::vector<json> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    all.push_back(json::parse(line));
  }
  return all;
}

/// `specdec embed` of the tiny EmbeddingGemma, in float32.
CliResult embed_cli(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--dtype", "float32", "embed", kTinyEmbedder});
  return cli(arguments);
}

std::string embed_complaint(const std::vector<std::string>& arguments) {
  const CliResult result = embed_cli(arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  return result.err;
}

double golden_difference(const json& row, const std::string& name) {
  static const Golden golden("embeddinggemma-a");
  const auto values = row["embedding"].get<std::vector<double>>();
  const at::Tensor wanted = golden.tensor(name).to(at::kDouble);
  double largest = static_cast<int64_t>(values.size()) == wanted.size(0) ? 0.0 : 1.0;
  for (size_t i = 0; i < values.size() && largest < 1.0; ++i) {
    largest = std::max(
        largest, std::abs(values[i] - wanted.const_data_ptr<double>()[static_cast<int64_t>(i)]));
  }
  return largest;
}

TEST(EmbedCliTest, RowsAreThoseOfTheReference) {
  const CliResult result = embed_cli({"hello", "a \u6c34", "hello"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const auto rows = json_lines(result.out);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[2]["index"], 2);
  EXPECT_EQ(rows[0]["tokens"], 6);
  EXPECT_LE(golden_difference(rows[0], "short.embedding"), 1e-5);
  EXPECT_EQ(rows[0]["embedding"], rows[2]["embedding"]);
  EXPECT_NE(rows[0]["embedding"], rows[1]["embedding"]);
}

TEST(EmbedCliTest, PromptsComeFromTasksOrTheUser) {
  const auto first = [](const std::vector<std::string>& arguments) {
    return json_lines(embed_cli(arguments).out).at(0);
  };
  const json query = first({"hello", "--task", "query"});
  EXPECT_LE(golden_difference(query, "short.query"), 1e-5);
  EXPECT_EQ(query, first({"hello", "--prompt", "task: search result | query: "}));
  EXPECT_THAT(embed_complaint({"hello", "--task", "Query"}),
              HasSubstr("unknown task 'Query'; known: Clustering, document, query"));
  EXPECT_THAT(embed_complaint({"hello", "--task", "query", "--prompt", ""}), HasSubstr("give one"));
}

TEST(EmbedCliTest, ReadsFilesOfLinesOfJsonAndStandardInput) {
  const TemporaryFolder folder;
  const auto rows = [](const std::vector<std::string>& arguments) {
    const CliResult result = embed_cli(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return json_lines(result.out);
  };
  const auto wanted = rows({"hello", "the tide"});
  EXPECT_EQ(rows({"--file", folder.write("a.txt", "hello\r\nthe tide\n").string()}), wanted);
  const auto json_file =
      folder.write("a.jsonl", "{\"id\": \"q1\", \"text\": \"hello\"}\n\n{\"text\": \"the tide\"}");
  const auto with_id = rows({"--file", json_file.string()});
  ASSERT_EQ(with_id.size(), 2);
  EXPECT_EQ(with_id[0]["id"], "q1");
  EXPECT_EQ(with_id[0]["embedding"], wanted[0]["embedding"]);
  EXPECT_EQ(with_id[1], wanted[1]);
  std::istringstream input("{\"text\": \"hello\"}\n{\"text\": \"the tide\"}\n");
  std::streambuf* const before = std::cin.rdbuf(input.rdbuf());
  EXPECT_EQ(rows({"--file", "-", "--jsonl"}), wanted);
  std::cin.rdbuf(before);
}

TEST(EmbedCliTest, WritesFilesOfEitherKind) {
  const TemporaryFolder folder;
  const auto tensors = (folder.path() / "e.safetensors").string();
  const CliResult result =
      embed_cli({"hello", "the tide", "--out", tensors, "--pooling", "max", "--dimensions", "5"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("embeddings [2, 5], pooling max"));
  const SafetensorsFile file(tensors);
  ASSERT_NE(file.find("embeddings"), nullptr);
  EXPECT_EQ(file.find("embeddings")->shape, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(file.metadata().at("pooling"), "max");
  EXPECT_EQ(file.metadata().at("normalized"), "true");
  const auto lines = (folder.path() / "e.jsonl").string();
  EXPECT_EQ(embed_cli({"hello", "--out", lines, "--quiet"}).code, 0);
  EXPECT_EQ(read_file(lines), embed_cli({"hello"}).out);
}

TEST(EmbedCliTest, MistakesAreNamed) {
  const TemporaryFolder folder;
  const std::string many = std::string(200, 'x');
  EXPECT_THAT(embed_complaint({}), HasSubstr("embed needs texts"));
  EXPECT_THAT(embed_complaint({"a", "--file", "b"}), HasSubstr("not both"));
  EXPECT_THAT(embed_complaint({"a", "", "b"}), HasSubstr("text 2: the text is empty"));
  EXPECT_THAT(embed_complaint({"--file", folder.write("b.txt", "a\n\nb\n").string()}),
              HasSubstr("b.txt:2: the text is empty"));
  EXPECT_THAT(embed_complaint({"--file", folder.write("b.jsonl", "{\"txt\": 1}\n").string()}),
              HasSubstr("b.jsonl:1: should be an object with a \"text\""));
  EXPECT_THAT(embed_complaint({"--file", folder.write("c.txt", "").string()}),
              HasSubstr("holds no texts"));
  EXPECT_THAT(embed_complaint({"a", "--pooling", "median"}), HasSubstr("known: mean, last, max"));
  EXPECT_THAT(embed_complaint({"a", "--out", "e.csv"}), HasSubstr(".safetensors or .jsonl"));
  EXPECT_THAT(embed_complaint({"a", "--out", (folder.path() / "no" / "e.jsonl").string()}),
              HasSubstr("its folder does not exist"));
  EXPECT_THAT(embed_complaint({"a", "\xff"}), HasSubstr("text 2: byte 1 is not part of any"));
  EXPECT_THAT(embed_complaint({"--file", folder.write("d.txt", "a\nb\xff\n").string()}),
              HasSubstr("d.txt:2: byte 2 is not part of any UTF-8 character"));
  const std::string texts = folder.write("e.jsonl", "{\"text\": \"a\"}\n").string();
  EXPECT_THAT(embed_complaint({"--file", texts, "--out", texts}),
              HasSubstr("holds no embeddings, so it is not"));
  EXPECT_EQ(read_file(texts), "{\"text\": \"a\"}\n");
  std::filesystem::create_directory(folder.path() / "f.jsonl");
  EXPECT_THAT(embed_complaint({"a", "--out", (folder.path() / "f.jsonl").string()}),
              HasSubstr("is a folder"));
  EXPECT_THAT(embed_complaint({"a", "--dimensions", "13"}), HasSubstr("embeddings have 12"));
  EXPECT_THAT(embed_complaint({many}), HasSubstr("--truncate"));
  EXPECT_EQ(json_lines(embed_cli({many, "--truncate"}).out).at(0)["tokens"], 64);
}

TEST(EmbedCliTest, DecodersEmbedAndEncodersDoNotDecode) {
  const CliResult result =
      cli({"embed", SPECDEC_SOURCE_DIR "/models/draft", "The people", "--no-normalize"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_GT(json_lines(result.out).at(0)["embedding"].size(), 12);
  const CliResult refused = cli({"generate", kTinyEmbedder, "--prompt", "hello"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("'specdec embed' gives its embeddings"));
  EXPECT_THAT(cli({"embed", test_data("gemma3-a").string(), "a"}).err,
              HasSubstr("has no tokenizer"));
}

}  // namespace
}  // namespace specdec
