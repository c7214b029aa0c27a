// Models on the ops of CUDA whose layers lie on disk, against the same on the device, bit by bit;
// in the emulation copies are as late as they may be, so that a missing wait shows.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/families/limited_model.h"
#include "core/formats/strict_json.h"
#include "core/kernels/cuda/cuda_copy_queue.h"
#include "core/transformer/paging/layer_pager.h"
#include "kv/paged_kv.h"
#include "tests/core/kernels/cuda/machine.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Some part of a queue's work that may be left out.
enum class Missing { kNothing, kOpsWait, kCopiesWait };

/// The emulated queue, which remembers from where it copies.
class WatchedCopies final : public CopyQueue {
 public:
  explicit WatchedCopies(Missing missing = Missing::kNothing) : missing_(missing) {}

  std::shared_ptr<std::byte> pinned(int64_t bytes) override { return queue_->pinned(bytes); }
  std::shared_ptr<std::byte> on_device(int64_t bytes) override { return queue_->on_device(bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    queue_->copy(to, from, bytes);
    sources_.insert(from);
  }
  void wait_for_ops() override {
    if (missing_ != Missing::kCopiesWait) {
      queue_->wait_for_ops();
    }
  }
  void let_ops_wait() override {
    if (missing_ != Missing::kOpsWait) {
      queue_->let_ops_wait();
    }
  }
  int64_t mark() override { return queue_->mark(); }
  void wait(int64_t mark) override {
    queue_->wait(mark);
    sources_.clear();
  }
  /// Whether nobody has waited for a copy from there.
  bool reads(const void* from) const { return sources_.count(from) > 0; }

 private:
  Missing missing_;
  std::shared_ptr<CopyQueue> queue_ = cuda_copy_queue(at::kCPU);
  std::set<const void*> sources_;
};

/// A golden set in bfloat16, or a GGUF file, whose layers do not all fit.
class OnDisk {
 public:
  explicit OnDisk(const std::string& name = "gemma3-a")
      : is_folder_(std::filesystem::exists(test_data(name))),
        model_(open_model(is_folder_ ? test_data(name) : golden_gguf(name))) {
    // Layers that are left in memory, of n, take with two buffers the memory of n - 1 at most.
    int64_t largest = 0;
    for (const LayerWeights& layer : whole_->layers) {
      int64_t bytes = 0;
      visit_matrices(layer, [&bytes](const Linear& matrix) {
        for (const Linear::Part& part : matrix.parts()) {
          bytes += aligned(static_cast<int64_t>(part.packed.nbytes()), kPartAlignment);
        }
      });
      visit_vectors(
          layer, [this](const Tensor& vector) { limit_ += static_cast<int64_t>(vector.nbytes()); });
      limit_ += aligned(bytes, kLayerAlignment);
      largest = std::max(largest, bytes);
    }
    limit_ += whole_->head.bytes();
    limit_ += whole_->config.tie_word_embeddings ? 0 : whole_->embedding.bytes();
    limit_ -= largest * 3 / 4;
  }

  const std::shared_ptr<const TransformerWeights>& whole() const { return whole_; }
  std::filesystem::path file() const { return folder_.path() / "layers"; }
  std::shared_ptr<const TransformerWeights> load(Missing missing = Missing::kNothing) const {
    return load_model_within(model_, options_, {limit_, file(), [missing](at::Device) {
                                                  return std::make_shared<WatchedCopies>(missing);
                                                }});
  }
  std::shared_ptr<const TransformerWeights> load_for_the_host() const {
    const LoadOptions options{.dtype = options_.dtype};
    return load_model_within(model_, options, {limit_, file()});
  }

 private:
  static int64_t aligned(int64_t bytes, int64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  TemporaryFolder folder_;
  bool is_folder_;
  OpenModel model_;
  LoadOptions options_{.dtype = is_folder_ ? std::optional(at::kBFloat16) : std::nullopt,
                       .place = kEmulated};
  std::shared_ptr<const TransformerWeights> whole_ = load_model(model_, options_);
  int64_t limit_ = 0;
};

int64_t layers_on_disk(const TransformerWeights& weights) {
  return std::count_if(weights.layers.begin(), weights.layers.end(),
                       [](const LayerWeights& layer) { return layer.in_source >= 0; });
}

/// Logits of a prompt, of tokens that are decoded, of a tree and of what follows a path of it.
std::vector<Tensor> results(TransformerModel& model) {
  std::vector<Tensor> found = {model.prefill_get_last_logits(std::vector<Token>{2, 3, 1, 4})};
  for (const Tensor& logits : decoded(model, std::vector<Token>{5, 7, 5})) {
    found.push_back(logits);
  }
  TokenBatch tree = batch_of(std::vector<Token>{3, 4, 5, 6});
  tree.parents = {-1, 0, 0, 1};
  found.push_back(model.forward(tree).logits.clone());
  model.commit(std::vector<int64_t>{0, 1, 3});
  found.push_back(decoded(model, std::vector<Token>{1}).front());
  return found;
}

std::vector<Tensor> results(std::shared_ptr<const TransformerWeights> weights) {
  TransformerModel model(std::move(weights), paged_kv(), emulated());
  return results(model);
}

bool are_equal(const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  return std::equal(found.begin(), found.end(), wanted.begin(), wanted.end(),
                    [](const Tensor& one, const Tensor& other) { return at::equal(one, other); });
}

class CudaLayersOnDiskTest : public testing::TestWithParam<std::string> {
 protected:
  OnDisk on_disk_{GetParam()};
};

TEST_P(CudaLayersOnDiskTest, HasTheBitsOfTheModelOnTheDevice) {
  TransformerModel whole(on_disk_.whole(), paged_kv(), emulated());
  const std::vector<Tensor> wanted = results(whole);
  EXPECT_GT(whole.graph_counts().warm_ups, 0);
  const auto weights = on_disk_.load();
  EXPECT_GE(layers_on_disk(*weights), std::min<int64_t>(3, std::ssize(weights->layers)));
  EXPECT_EQ(weights->fingerprint, on_disk_.whole()->fingerprint);
  EXPECT_EQ(forward_bytes(*weights), forward_bytes(*on_disk_.whole()));
  TransformerModel model(weights, paged_kv(), emulated());
  EXPECT_TRUE(are_equal(results(model), wanted));
  EXPECT_EQ(model.graph_counts().warm_ups, 0) << "hosts wait between layers";
  const LayerReads reads = weights->source->reads();
  EXPECT_EQ(reads.layers, layers_on_disk(*weights) * 6);
  EXPECT_GT(reads.bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Folder, CudaLayersOnDiskTest, testing::Values("gemma3-a"),
                         ParameterName());
INSTANTIATE_TEST_SUITE_P(Gguf, CudaLayersOnDiskTest,
                         testing::ValuesIn(found_golden_gguf({"gemma3-mixed", "gemma4-moe-q8_0"})),
                         ParameterName());

class CudaGemmaOnDiskTest : public testing::Test {
 protected:
  std::string content() const { return read_file(on_disk_.file()); }
  OnDisk on_disk_;
};

TEST_F(CudaGemmaOnDiskTest, DraftsByItsOwnLayersShareThePager) {
  const auto weights = on_disk_.load();
  const auto draft_and_verify = [](const std::shared_ptr<const TransformerWeights>& of) {
    TransformerModel target(of, paged_kv(), emulated());
    TransformerModel draft(of, paged_kv(), [] {
      TransformerOptions options = emulated();
      options.active_layers = 3;
      return options;
    }());
    std::vector<Tensor> found;
    for (TransformerModel* model : {&draft, &target}) {
      (void)model->prefill_get_last_logits(std::vector<Token>{2});
    }
    for (const Token token : {5, 7}) {
      for (TransformerModel* model : {&draft, &target}) {
        found.push_back(decoded(*model, std::vector<Token>{token}).front());
      }
    }
    return found;
  };
  EXPECT_TRUE(are_equal(draft_and_verify(weights), draft_and_verify(on_disk_.whole())));
}

TEST_F(CudaGemmaOnDiskTest, ADamagedLayerIsAnError) {
  (void)on_disk_.load();
  std::string wrong = content();
  wrong[wrong.size() / 2] = static_cast<char>(wrong[wrong.size() / 2] ^ 16);
  std::ofstream(on_disk_.file(), std::ios::binary) << wrong;
  EXPECT_THAT([&] { results(on_disk_.load()); },
              ThrowsMessage<Error>(AllOf(HasSubstr(on_disk_.file().string()), HasSubstr("damaged"),
                                         HasSubstr("Delete"))));
}

TEST_F(CudaGemmaOnDiskTest, AFileOfTheCpuIsWrittenAgain) {
  (void)on_disk_.load();
  const std::string right = content();
  (void)on_disk_.load_for_the_host();
  EXPECT_NE(content(), right);
  (void)on_disk_.load();
  EXPECT_EQ(content(), right);
}

/// Fills a layer with its number, from memory that nobody may copy from.
class WatchingStore final : public LayerStore {
 public:
  explicit WatchingStore(LayerPager::Copies copies) : copies_(std::move(copies)) {}
  int64_t layers() const override { return 5; }
  int64_t bytes(int64_t /*layer*/) const override { return kLayerAlignment; }
  void read(int64_t layer, std::span<std::byte> memory) override {
    for (const auto& copies : copies_) {
      too_early += dynamic_cast<const WatchedCopies&>(*copies).reads(memory.data()) ? 1 : 0;
    }
    ++reads;
    std::ranges::fill(memory, static_cast<std::byte>(layer));
  }
  std::atomic<int64_t> reads = 0, too_early = 0;

 private:
  LayerPager::Copies copies_;
};

TEST(CudaLayerPagerTest, ReadsIntoPinnedMemoryOnceItsCopyIsDone) {
  const LayerPager::Copies copies = {std::make_shared<WatchedCopies>(),
                                     std::make_shared<WatchedCopies>()};
  const auto store = std::make_shared<WatchingStore>(copies);
  LayerPager pager(store, {0, 1, 2, 3, 4}, copies);
  for (int round = 0; round < 3; ++round) {
    pager.prefetch(std::vector<int64_t>{0, 1, 2, 3, 4});
    for (int64_t layer = 0; layer < store->layers(); ++layer) {
      const HeldLayer held(&pager, layer);  // no op runs meanwhile, for which copies are made
    }
  }
  EXPECT_EQ(store->too_early, 0);
  EXPECT_GE(store->reads, 3 * store->layers());
}

// What the tests above rest on: the emulation shows waits that are missing.
class EmulatedOnDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::runs_on_a_gpu()) {
      GTEST_SKIP() << "its copies may be done at once";
    }
    on_disk_.emplace();
  }
  std::optional<OnDisk> on_disk_;
};

TEST_F(EmulatedOnDiskTest, OpsThatDoNotWaitAreFound) {
  const Tensor logits = results(on_disk_->load(Missing::kOpsWait)).front();
  EXPECT_TRUE(at::isnan(logits).any().item<bool>());
}

TEST_F(EmulatedOnDiskTest, CopiesThatDoNotWaitAreFound) {
  EXPECT_THAT([&] { results(on_disk_->load(Missing::kCopiesWait)); },
              ThrowsMessage<Error>(HasSubstr("overtakes a launch")));
}

}  // namespace
}  // namespace specdec
