// Conversions between Hugging Face folders and GGUF files, of all golden sets.
#include "core/families/convert/convert.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/llama/llama3_scaling.h"
#include "core/families/model.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

ConversionSummary converted(const fs::path& input, const fs::path& output,
                            const ConvertOptions& options = {}) {
  ModelConverter converter(input, output, options);
  int64_t told = 0;
  converter.write([&told](const std::string&) { ++told; });
  EXPECT_EQ(told, converter.summary().tensors);
  return converter.summary();
}

/// The tensors of a folder under the names of the text model.
std::map<std::string, at::Tensor> tensors_of(const fs::path& folder) {
  const CheckpointTensors files(folder);
  std::map<std::string, at::Tensor> all;
  for (const TensorEntry* entry : files.tensors()) {
    std::string name = entry->name;
    if (name.rfind("language_model.", 0) == 0) {
      name.erase(0, std::strlen("language_model."));
    }
    all.emplace(name, mapped_tensor(*entry).clone());
  }
  return all;
}

at::Tensor logits_of(const fs::path& model, const Golden& golden,
                     std::optional<at::ScalarType> dtype = at::kFloat) {
  TransformerModel loaded(load_model(model, {.dtype = dtype}), paged_kv());
  return loaded.forward({.tokens = golden.tensor("tokens").to(at::kInt), .rows = {}, .parents = {}})
      .logits;
}

void expect_greedy(const fs::path& model, const Golden& golden) {
  TransformerModel loaded(load_model(model, {.dtype = at::kFloat}), paged_kv());
  Tensor logits = loaded.prefill_get_last_logits(golden.tokens("prompt"));
  for (const Token wanted : golden.tokens("greedy")) {
    ASSERT_EQ(logits.argmax().item<int64_t>(), wanted) << model;
    logits = loaded.decode_get_logits({&wanted, 1})[0];
  }
}

class ConvertGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  const TemporaryFolder folder_;
  const Golden golden_{GetParam()};
  const fs::path gguf_ = folder_.path() / "m.gguf";
  const fs::path back_ = folder_.path() / "back";
};

TEST_P(ConvertGoldenTest, FloatsComeBackBitForBit) {
  converted(golden_.folder(), gguf_, {.dtype = DType::kF32});
  converted(gguf_, back_);
  const auto before = tensors_of(golden_.folder());
  const auto after = tensors_of(back_);
  const bool gemma = GetParam().rfind("gemma", 0) == 0;
  for (const auto& [name, tensor] : after) {
    const at::Tensor wanted = before.at(name).to(at::kFloat);
    // Gemma's norms have 1 added in GGUF, in float32: the sums are the same.
    const bool norm = gemma && name.find("norm.weight") != std::string::npos;
    EXPECT_TRUE(norm ? at::equal(tensor + 1.0, wanted + 1.0) : at::equal(tensor, wanted)) << name;
  }
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(after.count(name) == 1 || name.find("vision") != std::string::npos ||
                name.find("multi_modal") != std::string::npos)
        << name;
  }
  EXPECT_TRUE(at::equal(logits_of(golden_.folder(), golden_), logits_of(back_, golden_)));
}

TEST_P(ConvertGoldenTest, GreedyTokensAreTheSame) {
  converted(golden_.folder(), gguf_, {.dtype = DType::kF32});
  EXPECT_LE(max_difference(logits_of(gguf_, golden_), golden_.tensor("logits")), 1e-4);
  expect_greedy(gguf_, golden_);
  converted(gguf_, back_);
  expect_greedy(back_, golden_);
}

TEST_P(ConvertGoldenTest, HalvesAndBlocksAreCloseToTheValues) {
  const at::Tensor exact = logits_of(golden_.folder(), golden_);
  const double scale = exact.abs().max().item<double>();
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ80}) {
    const auto made = converted(golden_.folder(), gguf_, {.dtype = dtype, .replace = true});
    EXPECT_LE(max_difference(logits_of(gguf_, golden_, std::nullopt), exact), 0.15 * scale)
        << dtype_name(dtype);
    const GgufFile file(gguf_);
    for (const TensorEntry& tensor : file.tensors()) {
      const bool whole = tensor.shape.back() % block_values(dtype) == 0;
      EXPECT_EQ(tensor.dtype, tensor.shape.size() == 1 ? DType::kF32
                              : whole                  ? dtype
                                                       : DType::kF16)
          << tensor.name;
    }
    EXPECT_EQ(made.dtype, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvertGoldenTest, testing::ValuesIn(golden_names()),
                         ParameterName());

class ConvertGgufTest : public testing::TestWithParam<std::string> {
 protected:
  const TemporaryFolder folder_;
  const fs::path file_ = test_data("gguf") / (GetParam() + ".gguf");
  const Golden golden_{test_data("gguf") / (GetParam() + ".golden.safetensors"), Golden::File{}};
  const fs::path out_ = folder_.path() / "out";
};

TEST_P(ConvertGgufTest, FoldersHaveTheSameLogitsAndTokenizer) {
  const auto made = converted(file_, out_);
  EXPECT_EQ(made.dtype, GetParam() == "llama-f16" ? DType::kF16 : DType::kF32);
  EXPECT_TRUE(at::equal(logits_of(file_, golden_), logits_of(out_, golden_)));
  expect_greedy(out_, golden_);
  const auto before = load_tokenizer(file_);
  const auto after = load_tokenizer(out_);
  std::string difference;
  if (before->vocab_size() == after->vocab_size()) {
    EXPECT_TRUE(same_vocabulary(*before, *after, difference)) << difference;
  }
  for (const char* text : {"the thing in", " 12  3\n\nx", "caf\u00e9 <|im_end|> \u4e16 <bos>"}) {
    EXPECT_EQ(before->encode(text), after->encode(text)) << text;
  }
  EXPECT_EQ(before->bos(), after->bos());
  EXPECT_EQ(before->eos(), after->eos());
  EXPECT_EQ(before->adds_bos(), after->adds_bos());
  EXPECT_EQ(before->chat_template(), after->chat_template());
}

TEST_P(ConvertGgufTest, TokenizersComeBack) {
  converted(file_, out_);
  const auto again = folder_.path() / "again.gguf";
  converted(out_, again);
  const GgufMetadata before = GgufFile(file_).metadata();
  const GgufMetadata after = GgufFile(again).metadata();
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    if (before.has(key)) {
      EXPECT_EQ(before.texts(key), after.texts(key)) << key;
    }
  }
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.chat_template"}) {
    EXPECT_EQ(before.text(key, ""), after.text(key, "")) << key;
  }
  EXPECT_EQ(describe_model(file_).plan.front().rope, describe_model(again).plan.front().rope);
  EXPECT_TRUE(at::equal(logits_of(file_, golden_), logits_of(again, golden_)));
}

INSTANTIATE_TEST_SUITE_P(All, ConvertGgufTest,
                         testing::Values("llama-f16", "llama-q4_1", "gemma2-q4_k", "gemma3-mixed"),
                         ParameterName());

TEST(ConvertTest, BlocksOfBlocksAreTheSame) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "once.gguf";
  converted(test_data("gguf/llama-f16.gguf"), file, {.dtype = DType::kQ80});
  const auto out = folder.path() / "m.gguf";
  converted(file, out, {.dtype = DType::kQ80});
  const GgufFile before(file);
  const GgufFile after(out);
  for (const TensorEntry& tensor : before.tensors()) {
    const TensorEntry* same = after.find(tensor.name);
    ASSERT_NE(same, nullptr) << tensor.name;
    ASSERT_EQ(same->dtype, tensor.dtype) << tensor.name;
    EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), same->bytes.begin()))
        << tensor.name;
  }
}

TEST(ConvertTest, EachMatrixKeepsItsDtype) {
  const TemporaryFolder folder;
  const auto file = test_data("gguf/gemma3-mixed.gguf");
  const auto out = folder.path() / "out";
  const auto again = folder.path() / "again.gguf";
  EXPECT_EQ(converted(file, out).dtype, DType::kF32);
  converted(out, again, {.dtype = {}, .tokenizer = false});
  const GgufFile before(file);
  const GgufFile after(again);
  std::set<DType> dtypes;
  for (const TensorEntry& tensor : before.tensors()) {
    const DType dtype = is_block(tensor.dtype) ? DType::kF32 : tensor.dtype;
    EXPECT_EQ(after.find(tensor.name)->dtype, dtype) << tensor.name;
    dtypes.insert(dtype);
  }
  EXPECT_THAT(dtypes, UnorderedElementsAre(DType::kF32, DType::kF16, DType::kBF16));
  const TokenBatch batch{.tokens = at::arange(3, 20, at::kInt), .rows = {}, .parents = {}};
  EXPECT_TRUE(at::equal(TransformerModel(load_model(file), paged_kv()).forward(batch).logits,
                        TransformerModel(load_model(again), paged_kv()).forward(batch).logits));
}

TEST(ConvertTest, NotesSayWhatLlamaCppReadsOtherwise) {
  const TemporaryFolder folder;
  const auto note = [&folder](const char* set, DType dtype) {
    const ModelConverter converter(test_data(set), folder.path() / "m.gguf", {.dtype = dtype});
    std::string all;
    for (const std::string& one : converter.summary().notes) {
      all += one + "\n";
    }
    return all;
  };
  EXPECT_THAT(note("mistral-a", DType::kF32), HasSubstr("more than 6 tokens differ"));
  EXPECT_THAT(note("gemma2-a", DType::kF32), HasSubstr("takes 24 as query_pre_attn_scalar"));
  EXPECT_THAT(note("llama-a", DType::kQ80), HasSubstr("no multiple of 32, so Q8_0 cannot hold"));
  EXPECT_THAT(note("qwen3-a", DType::kF32), HasSubstr("there is no tokenizer"));
}

TEST(ConvertTest, ConfigsSayTheSame) {
  const TemporaryFolder folder;
  for (const char* set : {"llama-a", "mistral-a", "qwen2-a", "qwen3-a", "gemma3-a"}) {
    const auto gguf = folder.path() / (std::string(set) + ".gguf");
    const auto back = folder.path() / set;
    converted(test_data(set), gguf);
    converted(gguf, back);
    EXPECT_EQ(describe_model(back).text, describe_model(test_data(set)).text) << set;
    EXPECT_EQ(describe_model(back).config.end_ids, describe_model(test_data(set)).config.end_ids);
  }
}

/// A copy of a golden set that a test changes.
class ChangedModel {
 public:
  explicit ChangedModel(const std::string& set) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(test_data(set) / file, path() / file);
    }
  }
  const fs::path& path() const { return folder_.path(); }
  void set_key(const std::string& key, const nlohmann::json& value) const {
    auto config = nlohmann::json::parse(read_file(path() / "config.json"));
    config[key] = value;
    std::ofstream(path() / "config.json") << config;
  }
  /// `change` gives the new values; an undefined tensor leaves it out.
  void change(const std::string& name, const std::function<at::Tensor(at::Tensor)>& change) const {
    auto all = tensors_of(path());
    all[name] = change(all.at(name));
    std::vector<TensorToWrite> list;
    for (const auto& [key, tensor] : all) {
      if (tensor.defined()) {
        list.push_back({key,
                        DType::kF32,
                        tensor.sizes().vec(),
                        {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
      }
    }
    write_safetensors(path() / "model.safetensors", list);
  }

 private:
  TemporaryFolder folder_;
};

TEST(ConvertTest, LayersMayAllSeeEverything) {
  for (const char* set : {"gemma2-a", "gemma3-a"}) {
    const TemporaryFolder folder;
    const ChangedModel full(set);
    const auto layers = static_cast<size_t>(describe_model(full.path()).config.num_layers);
    full.set_key("layer_types", std::vector<std::string>(layers, "full_attention"));
    const auto gguf = folder.path() / "m.gguf";
    converted(full.path(), gguf);
    EXPECT_TRUE(at::equal(logits_of(gguf, Golden(set)), logits_of(full.path(), Golden(set))));
    EXPECT_FALSE(at::equal(logits_of(gguf, Golden(set)), logits_of(test_data(set), Golden(set))));
  }
}

TEST(ConvertTest, WindowsOfSomeLayersOfAMistralComeBack) {
  const TemporaryFolder folder;
  const ChangedModel mixed("mistral-a");
  const auto layers = static_cast<size_t>(describe_model(mixed.path()).config.num_layers);
  std::vector<std::string> types(layers, "full_attention");
  types.front() = "sliding_attention";
  mixed.set_key("layer_types", types);
  const auto gguf = folder.path() / "m.gguf";
  const auto back = folder.path() / "back";
  converted(mixed.path(), gguf);
  converted(gguf, back);
  EXPECT_EQ(describe_model(back).text, describe_model(mixed.path()).text);
  EXPECT_NE(describe_model(back).text, describe_model(test_data("mistral-a")).text);
}

TEST(ConvertTest, BandsOfLlama3ThatAreNotItsOwnComeBack) {
  const TemporaryFolder folder;
  const ChangedModel model("llama-a");
  model.set_key("head_dim", nullptr);
  model.set_key("rope_scaling", {{"rope_type", "llama3"},
                                 {"factor", 6.5},
                                 {"low_freq_factor", 0.5},
                                 {"high_freq_factor", 9.0},
                                 {"original_max_position_embeddings", 100}});
  const auto gguf = folder.path() / "m.gguf";
  const auto back = folder.path() / "back";
  converted(model.path(), gguf);
  converted(gguf, back);
  EXPECT_TRUE(same_divisors(describe_model(back).plan[0].rope.divisors,
                            describe_model(model.path()).plan[0].rope.divisors));
  EXPECT_LE(max_difference(logits_of(back, Golden("llama-a")),
                           logits_of(model.path(), Golden("llama-a"))),
            1e-3);
}

TEST(ConvertTest, NotesSayWhichEndTokensAreLeftOut) {
  const TemporaryFolder folder;
  const ChangedModel model("llama-a");
  model.set_key("eos_token_id", {1, 2, 3, 4, 5});
  const ModelConverter converter(model.path(), folder.path() / "m.gguf", {});
  EXPECT_THAT(converter.summary().notes, Contains(HasSubstr("3 end tokens; 2 more are left out")));
}

/// The error of a conversion, which leaves nothing behind.
std::string failed_conversion(const fs::path& input, const std::string& output,
                              const ConvertOptions& options = {}) {
  const TemporaryFolder folder;
  std::string message =
      error_message<Error>([&] { converted(input, folder.path() / output, options); });
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    left.push_back(entry.path());
  }
  EXPECT_THAT(left, IsEmpty()) << message;
  return message;
}

TEST(ConvertErrorTest, ModelsThatCannotBeConverted) {
  const ChangedModel family("llama-a");
  family.set_key("model_type", "gpt_neox");
  EXPECT_THAT(failed_conversion(family.path(), "m.gguf"), HasSubstr("'gpt_neox'; known: gemma"));
  const ChangedModel missing("llama-a");
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  missing.change(name, [](const at::Tensor&) { return at::Tensor(); });
  EXPECT_THAT(failed_conversion(missing.path(), "m.gguf"), HasSubstr(name + "' is missing"));
  const ChangedModel large("llama-a");
  large.change(name, [](const at::Tensor& values) { return values * 1e9; });
  const auto message = failed_conversion(large.path(), "m.gguf", {.dtype = DType::kF16});
  EXPECT_THAT(message, HasSubstr(name));
  EXPECT_THAT(message, HasSubstr("more than F16 can hold. Choose --dtype bfloat16"));
  EXPECT_THAT(failed_conversion(test_data("llama-a"), "a/m.gguf"), HasSubstr("there is no folder"));
  const ChangedModel broken("llama-a");
  broken.change(name, [](const at::Tensor& values) { return values / 0.0; });
  EXPECT_THAT(failed_conversion(broken.path(), "m.gguf"), HasSubstr("infinity at [0, 0]"));
}

TEST(ConvertErrorTest, TokenizersLargerThanTheVocabulary) {
  const auto tokenizer = read_tokenizer_files(test_data("gguf/llama-f16.gguf"));
  const ChangedModel model("llama-a");
  write_tokenizer_files(*tokenizer, model.path());
  const int64_t vocab_size = describe_model(model.path()).config.vocab_size;
  ASSERT_LT(vocab_size, 292);
  EXPECT_THAT(
      failed_conversion(model.path(), "m.gguf"),
      HasSubstr(fmt::format("has 292 pieces, but the model's vocabulary only {}; it belongs "
                            "to another model. Convert it with --no-tokenizer",
                            vocab_size)));
  const TemporaryFolder folder;
  EXPECT_NO_THROW(converted(model.path(), folder.path() / "m.gguf", {.tokenizer = false}));
}

TEST(ConvertErrorTest, PlansThatGgufCannotSay) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const ChangedModel uncapped("gemma2-a");
    uncapped.set_key(key, nullptr);
    const auto message = failed_conversion(uncapped.path(), "m.gguf");
    EXPECT_THAT(message, HasSubstr(std::string("its ") + key));
    EXPECT_THAT(message, HasSubstr("none, which a GGUF file of architecture gemma2 cannot say"));
  }
  const ChangedModel scaled("gemma3-a");
  scaled.set_key(
      "rope_parameters",
      {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
       {"sliding_attention", {{"rope_type", "linear"}, {"rope_theta", 1e4}, {"factor", 2.0}}}});
  EXPECT_THAT(failed_conversion(scaled.path(), "m.gguf"),
              HasSubstr("its factor of the rotation (rope_parameters) of layer 0 "
                        "(sliding_attention) is 2, which"));
}

TEST(ConvertErrorTest, DtypesThatMakeNoSense) {
  const auto gguf = test_data("gguf/llama-q4_1.gguf");
  EXPECT_THAT(failed_conversion(gguf, "folder", {.dtype = DType::kQ80}),
              HasSubstr("int8 (Q8_0) is a format of GGUF files"));
  EXPECT_THAT(failed_conversion(gguf, "m.gguf"), HasSubstr("is a GGUF file already"));
  EXPECT_THAT(failed_conversion(test_data("llama-a"), "x"), HasSubstr("is a folder already"));
}

TEST(ConvertErrorTest, OutputsAreReplacedOnlyWhenAsked) {
  const TemporaryFolder folder;
  const auto gguf = folder.path() / "m.gguf";
  const auto out = folder.path() / "out";
  const auto set = test_data("llama-a");
  converted(set, gguf);
  EXPECT_THAT(error_message<ConfigError>([&] { converted(set, gguf); }),
              HasSubstr("exists. Name another output, or replace it: --force"));
  converted(set, gguf, {.dtype = DType::kF16, .replace = true});
  EXPECT_EQ(GgufFile(gguf).find("token_embd.weight")->dtype, DType::kF16);
  converted(gguf, out);
  folder.write("out/chat_template.jinja", "of an older conversion");
  converted(gguf, out, {.replace = true});
  EXPECT_FALSE(fs::exists(out / "chat_template.jinja"));
  folder.write("out/notes.txt", "x");
  EXPECT_THAT(error_message<ConfigError>([&] { converted(gguf, out, {.replace = true}); }),
              HasSubstr("holds notes.txt, which no conversion writes"));
  EXPECT_TRUE(fs::exists(out / "notes.txt"));
  fs::create_directory(folder.path() / "others");
  folder.write("others/letter.txt", "x");
  EXPECT_THAT(error_message<ConfigError>(
                  [&] { converted(gguf, folder.path() / "others", {.replace = true}); }),
              HasSubstr("a folder without a config.json, which is not replaced"));
  EXPECT_TRUE(fs::exists(folder.path() / "others/letter.txt"));
  EXPECT_THAT(error_message<ConfigError>(
                  [&] { converted(out, out, {.dtype = DType::kF32, .replace = true}); }),
              HasSubstr("is input and output"));
}

TEST(ConvertErrorTest, AFullDiskLeavesNothing) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 100000;  // a limit on the size of files stands for the full disk
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const char* output : {"m.gguf", "folder"}) {
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto message = failed_conversion(test_data("llama-a"), output, {.dtype = DType::kF32});
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(message, HasSubstr("cannot write")) << output;
  }
  std::signal(SIGXFSZ, old_handler);
}

TEST(ConvertErrorTest, AnInterruptLeavesNothing) {
  const TemporaryFolder folder;
  struct Stop {};
  for (const char* output : {"m.gguf", "folder"}) {
    ModelConverter converter(test_data("llama-a"), folder.path() / output, {.dtype = DType::kF32});
    EXPECT_THROW(converter.write([](const std::string&) { throw Stop{}; }), Stop);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

/// The shipped target's tokenizer: SentencePiece, and the tokenizer.json that gives the same ids.
TEST(ConvertTest, ShippedTokenizerComesBackFromEitherFile) {
  const TemporaryFolder folder;
  const fs::path target = fs::path(SPECDEC_SOURCE_DIR) / "models/target";
  const auto text = folder.path() / "text";
  fs::create_directory(text);
  fs::copy_file(target / "tokenizer.json", text / "tokenizer.json");
  const auto from_json = read_tokenizer_files(text);
  const auto from_model = read_tokenizer_files(target);
  ASSERT_TRUE(from_json && from_model);
  for (const auto& files : {*from_json, *from_model}) {
    GgufEntries entries;
    const auto& pieces = std::get<SentencePieceModel>(files.model).pieces;
    add_gguf_tokenizer(files, static_cast<int64_t>(pieces.size()) + 3, "here", entries);
    GgufMetadata metadata = written_content(entries, {}, "made").metadata;
    metadata.add("tokenizer.ggml.bos_token_id", int64_t{*files.bos});
    metadata.add("tokenizer.ggml.eos_token_id", int64_t{*files.eos});
    const auto made = folder.path() / "made";
    fs::create_directories(made);
    write_tokenizer_files(*read_tokenizer_files(metadata), made);
    const auto before = load_tokenizer(target);
    const auto after = load_tokenizer(made);
    std::string difference;
    EXPECT_TRUE(same_vocabulary(*before, *after, difference)) << difference;
    for (const char* sample : {"Once upon a time, there was a little girl.", "  two\n\n\nlines ",
                               "\u4e16\u754c <start_of_turn>user", "na\u00efve 123"}) {
      EXPECT_EQ(before->encode(sample), after->encode(sample)) << sample;
    }
  }
}

}  // namespace
}  // namespace specdec
