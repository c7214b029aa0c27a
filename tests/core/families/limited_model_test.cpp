// Models whose layers lie on disk, against the same in memory, bit by bit.
#include "core/families/limited_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <ostream>

#include "core/error.h"
#include "core/formats/memory_tensors.h"
#include "core/formats/strict_json.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<Token> kText = {2, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};

/// The least limit that the model can be loaded with: most of its layers lie on disk then.
int64_t least_limit(const OpenModel& model, const LoadOptions& options, const fs::path& file) {
  int64_t too_small = 0;
  int64_t enough = int64_t{1} << 30U;
  while (enough - too_small > enough / 64) {
    const int64_t limit = (too_small + enough) / 2;
    try {
      (void)load_model_within(model, options, {limit, file});
      enough = limit;
    } catch (const ConfigError&) {
      too_small = limit;
    }
  }
  return enough;
}

int64_t layers_on_disk(const TransformerWeights& weights) {
  return std::count_if(weights.layers.begin(), weights.layers.end(),
                       [](const LayerWeights& layer) { return layer.in_source >= 0; });
}

/// What a model says of a text that it reads in chunks, of a tree behind it in two rows, and after
/// part of the tree was kept.
std::vector<Tensor> results(std::shared_ptr<const TransformerWeights> weights) {
  TransformerModel model(std::move(weights), paged_kv(4));
  const ForwardOptions all{.hidden = Hidden::kAll};
  std::vector<Tensor> found;
  const auto keep = [&found](const ForwardResult& result) {
    found.push_back(result.logits.clone());
    found.push_back(result.final_hidden.clone());
  };
  for (const size_t first : {size_t{0}, size_t{7}, size_t{8}}) {
    const size_t end = first == 0 ? 7 : first == 7 ? 8 : kText.size();
    const Tensor tokens = at::tensor(std::vector<Token>(kText.begin() + static_cast<int64_t>(first),
                                                        kText.begin() + static_cast<int64_t>(end)),
                                     at::kInt);
    keep(model.forward({.tokens = tokens}, all));
    std::vector<int64_t> path(end - first);
    std::iota(path.begin(), path.end(), 0);
    model.commit(path);
  }
  const RowId other = model.fork(0, 9);
  keep(model.forward({.tokens = at::tensor({3, 4, 5, 6, 7}, at::kInt),
                      .rows = {0, 0, 0, other, other},
                      .parents = {-1, 0, 0, -1, 0}},
                     all));
  model.commit(std::vector<int64_t>{0, 2});
  keep(model.forward({.tokens = at::tensor({1}, at::kInt)}, all));
  return found;
}

void expect_equal(const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
  }
}

/// A checkpoint, and how it is loaded.
struct LimitedCase {
  fs::path model;
  std::optional<at::ScalarType> dtype = {};
  ActivationFormat activations = ActivationFormat::kFloat32;
};

void PrintTo(const LimitedCase& one, std::ostream* out) {
  *out << one.model.filename().string() << (one.dtype ? c10::toString(*one.dtype) : "");
}

class LimitedModelTest : public testing::TestWithParam<LimitedCase> {
 protected:
  TemporaryFolder folder_;
  fs::path file_ = folder_.path() / "layers";
  LoadOptions options_{.dtype = GetParam().dtype, .activations = GetParam().activations};
};

std::vector<LimitedCase> limited_cases() {
  std::vector<LimitedCase> cases;
  for (const std::string& name : all_golden_names()) {
    cases.push_back({test_data(name)});
  }
  for (const std::string& name :
       found_golden_gguf({"gemma2-q4_k", "gemma3-mixed", "gemma3n-q8_0", "gemma4-moe-q8_0"})) {
    cases.push_back({golden_gguf(name)});
  }
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kHalf, at::kChar}) {
    cases.push_back({test_data("gemma3-a"), dtype});
    cases.push_back({test_data("llama-a"), dtype});
  }
  cases.push_back({test_data("qwen2-a"), at::kChar, ActivationFormat::kInt8});
  return cases;
}

TEST_P(LimitedModelTest, HasTheBitsOfTheModelInMemory) {
  const OpenModel model = open_model(GetParam().model);
  const auto whole = load_model(model, options_);
  const int64_t limit = least_limit(model, options_, file_);
  const auto wanted = results(whole);
  const auto limited = load_model_within(model, options_, {limit, file_});
  EXPECT_GE(layers_on_disk(*limited), 3);
  EXPECT_EQ(limited->fingerprint, whole->fingerprint);
  EXPECT_EQ(limited->weights_fingerprint, whole->weights_fingerprint);
  EXPECT_EQ(forward_bytes(*limited), forward_bytes(*whole));
  expect_equal(results(limited), wanted);
  expect_equal(results(limited), wanted);  // two models, one after the other
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, LimitedModelTest, testing::ValuesIn(limited_cases()));

class LimitedGemmaTest : public testing::Test {
 protected:
  std::shared_ptr<const TransformerWeights> load() {
    return load_model_within(model_, {}, {limit_, file_});
  }
  std::string content() const { return read_file(file_); }
  void overwrite(const std::string& bytes) const {
    std::ofstream(file_, std::ios::binary) << bytes;
  }

  TemporaryFolder folder_;
  fs::path file_ = folder_.path() / "layers";
  OpenModel model_ = open_model(test_data("gemma3-a"));
  int64_t limit_ = least_limit(model_, {}, file_);
  std::vector<Tensor> wanted_ = results(load_model(model_));
};

TEST_F(LimitedGemmaTest, IsWholeWhereItFits) {
  fs::remove(file_);
  const auto weights = load_model_within(model_, {}, {int64_t{1} << 30U, file_});
  EXPECT_EQ(weights->source, nullptr);
  EXPECT_EQ(layer_reads(*weights), std::nullopt);
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(LimitedGemmaTest, WritesItsFileOnceForAllLimits) {
  const auto written = fs::last_write_time(file_);
  int64_t before = std::ssize(load()->layers) + 1;
  for (int64_t limit = limit_;; limit += limit_ / 20) {
    const auto weights = load_model_within(model_, {}, {limit, file_});
    const int64_t on_disk = layers_on_disk(*weights);
    EXPECT_LE(on_disk, before);
    before = on_disk;
    expect_equal(results(weights), wanted_);
    if (on_disk == 0) {
      break;
    }
  }
  EXPECT_EQ(fs::last_write_time(file_), written);
}

TEST_F(LimitedGemmaTest, ReadsWhatAForwardEvaluates) {
  const auto weights = load();
  TransformerModel model(weights, paged_kv(4));
  (void)model.prefill_get_last_logits(kText);
  const LayerReads prefill = weights->source->reads();
  EXPECT_EQ(prefill.layers, layers_on_disk(*weights));
  int64_t bytes = 0;
  int64_t expected = 0;
  for (const LayerWeights& layer : weights->layers) {
    visit_matrices(layer, [&](const Linear& matrix) { bytes += matrix.bytes(); });
    expected += layer.in_source >= 0 && layer.in_source < 2 ? 1 : 0;
  }
  EXPECT_GE(prefill.bytes, bytes);
  EXPECT_LT(prefill.bytes, bytes + 4096 * std::ssize(weights->layers));
  (void)model.forward({.tokens = at::tensor({5}, at::kInt)}, {.layers = {0, 1}});
  const LayerReads draft = weights->source->reads() - prefill;
  EXPECT_EQ(draft.layers, expected);
}

TEST_F(LimitedGemmaTest, DraftsByItsOwnLayersShareThePager) {
  const auto whole = load_model(model_);
  const auto weights = load();
  TransformerModel target(weights, paged_kv(4));
  TransformerModel draft(weights, paged_kv(4), {.active_layers = 2});
  TransformerModel wanted_target(whole, paged_kv(4));
  TransformerModel wanted_draft(whole, paged_kv(4), {.active_layers = 2});
  for (TransformerModel* model : {&target, &draft, &wanted_target, &wanted_draft}) {
    (void)model->prefill_get_last_logits(kText);
  }
  for (const Token token : kText) {
    const std::vector<Token> next = {token};
    EXPECT_TRUE(at::equal(draft.decode_get_logits(next), wanted_draft.decode_get_logits(next)));
    EXPECT_TRUE(at::equal(target.decode_get_logits(next), wanted_target.decode_get_logits(next)));
  }
}

TEST_F(LimitedGemmaTest, UnpacksItsLayers) {
  const TransformerTensors found = unpack(*load());
  const TransformerTensors wanted = unpack(*load_model(model_));
  EXPECT_EQ(found.source, nullptr);
  for (size_t i = 0; i < wanted.layers.size(); ++i) {
    EXPECT_TRUE(at::equal(found.layers[i].down, wanted.layers[i].down)) << i;
  }
}

TEST_F(LimitedGemmaTest, WritesADamagedOrCutFileAgain) {
  const std::string right = content();
  for (const size_t size : {size_t{0}, size_t{10}, size_t{5000}, right.size() / 2, right.size() - 9,
                            right.size() - 1}) {
    overwrite(right.substr(0, size));
    expect_equal(results(load()), wanted_);
    EXPECT_EQ(content(), right) << size;
  }
  for (const size_t back : {size_t{1}, size_t{9}, size_t{60}, size_t{200}}) {  // in the table
    std::string wrong = right;
    wrong[wrong.size() - back] = static_cast<char>(wrong[wrong.size() - back] ^ 4);
    overwrite(wrong);
    expect_equal(results(load()), wanted_);
    EXPECT_EQ(content(), right) << back;
  }
}

TEST_F(LimitedGemmaTest, ADamagedLayerIsAnError) {
  const std::string right = content();
  for (const size_t place : {size_t{4096}, size_t{4096 + 777}, right.size() / 2}) {
    std::string wrong = right;
    wrong[place] = static_cast<char>(wrong[place] ^ 16);
    overwrite(wrong);
    EXPECT_THAT([&] { results(load()); },
                ThrowsMessage<Error>(testing::AllOf(HasSubstr(file_.string()), HasSubstr("damaged"),
                                                    HasSubstr("Delete"))));
  }
}

TEST_F(LimitedGemmaTest, AFileThatShrinksWhileItIsReadIsAnError) {
  const auto weights = load();
  fs::resize_file(file_, 8192);
  TransformerModel model(weights, paged_kv(4));
  EXPECT_THAT([&] { model.prefill_get_last_logits(kText); },
              ThrowsMessage<Error>(HasSubstr(file_.string())));
  EXPECT_EQ(model.length(), 0);
}

TEST_F(LimitedGemmaTest, AFileOfAnotherModelIsWrittenAgain) {
  const std::string right = content();
  (void)load_model_within(open_model(test_data("llama-a")), {},
                          {least_limit(open_model(test_data("llama-a")), {}, file_), file_});
  EXPECT_NE(content(), right);
  expect_equal(results(load()), wanted_);
  EXPECT_EQ(content(), right);
}

TEST_F(LimitedGemmaTest, FollowsACheckpointThatChanges) {
  TemporaryFolder other;
  const fs::path copy = other.path() / "model";
  fs::copy(test_data("gemma3-a"), copy, fs::copy_options::recursive);
  const auto load_copy = [&] { return load_model_within(open_model(copy), {}, {limit_, file_}); };
  (void)load_copy();
  const auto written = fs::last_write_time(file_);
  (void)load_copy();
  EXPECT_EQ(fs::last_write_time(file_), written);
  fs::last_write_time(copy / "model.safetensors",
                      fs::last_write_time(copy / "model.safetensors") + std::chrono::seconds(5));
  (void)load_copy();
  EXPECT_NE(fs::last_write_time(file_), written);
}

TEST_F(LimitedGemmaTest, OverwritesNoOtherFile) {
  for (const char* text : {"my notes", "specdec is a toolkit, and this text is longer than that"}) {
    overwrite(text);
    EXPECT_THAT([&] { load(); }, ThrowsMessage<Error>(HasSubstr("not overwritten")));
    EXPECT_EQ(content(), text);
  }
  fs::remove(file_);
  fs::create_directory(file_);
  EXPECT_THAT([&] { load(); }, ThrowsMessage<Error>(HasSubstr("Name a file")));
}

TEST_F(LimitedGemmaTest, IgnoresWhatAKilledProgramLeft) {
  const std::string right = content();
  fs::remove(file_);
  const fs::path old = folder_.write("layers.abc123", right.substr(0, right.size() / 2));
  const fs::path young = folder_.write("layers.xyz789", right.substr(0, right.size() / 2));
  const fs::path other = folder_.write("layers.notes", "mine");
  for (const fs::path& path : {old, other}) {
    fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(2));
  }
  expect_equal(results(load()), wanted_);
  EXPECT_EQ(content(), right);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));  // another program may be writing it
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(LimitedGemmaTest, AFullDiskIsAnErrorAndLeavesNothing) {
  const auto size = fs::file_size(file_);
  fs::remove(file_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = size / 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT([&] { load(); }, ThrowsMessage<Error>(testing::AllOf(HasSubstr("cannot write"),
                                                                   HasSubstr("space left"))));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  expect_equal(results(load()), wanted_);
}

TEST_F(LimitedGemmaTest, RefusesWhatItCannotDo) {
  EXPECT_THAT(
      [&] {
        load_model_within(model_, {}, {1000, file_});
      },
      ThrowsMessage<ConfigError>(HasSubstr("too small")));
  LoadOptions on_gpu;
  on_gpu.place.device = at::Device("mps");
  EXPECT_THAT(
      [&] {
        load_model_within(model_, on_gpu, {limit_, file_});
      },
      ThrowsMessage<ConfigError>(HasSubstr("not supported on Apple GPUs")));
  auto memory = std::make_shared<MemoryTensors>("my model");
  const auto bytes =
      std::make_shared<std::string>(read_file(test_data("gemma3-a") / "model.safetensors"));
  memory->add_safetensors(std::as_bytes(std::span(*bytes)), "my bytes", bytes);
  const OpenModel in_memory = open_model(read_file(test_data("gemma3-a") / "config.json"), memory);
  EXPECT_THAT(
      [&] {
        load_model_within(in_memory, {}, {limit_, file_});
      },
      ThrowsMessage<ConfigError>(HasSubstr("needs a model in files")));
}

TEST_F(LimitedGemmaTest, HasAFileForEachModelAndDtype) {
  const fs::path one = default_layer_file(model_, {});
  EXPECT_EQ(one, default_layer_file(open_model(test_data("gemma3-a")), {}));
  EXPECT_NE(one, default_layer_file(model_, {.dtype = at::kBFloat16}));
  EXPECT_NE(one, default_layer_file(open_model(test_data("llama-a")), {}));
  EXPECT_THAT(one.filename().string(), HasSubstr("gemma3-a-"));
}

}  // namespace
}  // namespace specdec
