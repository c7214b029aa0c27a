// The property that all speculation stands on: after any history of prefills, decodes, growing
// trees, commits, truncates, forks and closed rows, every logit is what a fresh uncached forward
// gives.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/families/model.h"
#include "core/transformer/reference.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

/// What a row should hold, kept apart from the model under test.
struct Row {
  std::vector<Token> kept;
  std::vector<Token> nodes;      // pending
  std::vector<int64_t> parents;  // of the pending ones

  std::vector<Token> sequence_to(int64_t node) const {
    std::vector<Token> tail;
    for (int64_t at = node; at >= 0; at = parents[static_cast<size_t>(at)]) {
      tail.push_back(nodes[static_cast<size_t>(at)]);
    }
    std::vector<Token> all = kept;
    all.insert(all.end(), tail.rbegin(), tail.rend());
    return all;
  }
  std::vector<int64_t> path_to(int64_t node) const {
    std::vector<int64_t> path;
    for (int64_t at = node; at >= 0; at = parents[static_cast<size_t>(at)]) {
      path.insert(path.begin(), at);
    }
    return path;
  }
};

class History {
 public:
  History(const std::string& golden, uint64_t seed)
      : random_(seed), weights_(load(golden)), model_(weights_, paged_kv(page_size(seed))) {}

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      switch (pick(8)) {
        case 0:
          truncate();
          break;
        case 1:
          change_rows();
          break;
        case 2:
        case 3:
          commit();
          break;
        default:
          grow();
          break;
      }
    }
  }

 private:
  static constexpr int64_t kLongest = 40;  // several times the windows of the golden sets

  static std::shared_ptr<const TransformerWeights> load(const std::string& golden) {
    LoadOptions options;
    options.dtype = at::kFloat;
    return load_model(test_data(golden), options);
  }
  static int64_t page_size(uint64_t seed) { return seed % 2 == 0 ? 4 : 16; }

  int64_t pick(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  /// New nodes for some rows, with random parents among all pending ones.
  void grow() {
    TokenBatch batch;
    std::vector<Token> tokens;
    std::vector<std::pair<RowId, int64_t>> added;
    const bool chain = pick(3) == 0;
    for (auto& [name, row] : rows_) {
      const auto used = static_cast<int64_t>(row.kept.size() + row.nodes.size());
      const bool is_new = used == 0;
      if (!is_new && pick(3) == 0) {
        continue;
      }
      const int64_t count = std::min<int64_t>(1 + pick(chain ? 9 : 5), kLongest - used);
      for (int64_t i = 0; i < count; ++i) {
        const auto size = static_cast<int64_t>(row.nodes.size());
        const int64_t parent = chain ? size - 1 : pick(size + 1) - 1;
        const auto token = static_cast<Token>(pick(weights_->config.vocab_size));
        row.nodes.push_back(token);
        row.parents.push_back(parent);
        tokens.push_back(token);
        batch.rows.push_back(name);
        batch.parents.push_back(parent);
        added.emplace_back(name, size);
      }
    }
    if (tokens.empty()) {
      return;
    }
    batch.tokens = at::tensor(tokens, at::kInt);
    if (chain) {
      batch.parents.clear();
    }
    check(model_.forward(batch).logits, added);
  }

  void check(const at::Tensor& logits, const std::vector<std::pair<RowId, int64_t>>& added) {
    for (size_t i = 0; i < added.size(); ++i) {
      const auto sequence = rows_.at(added[i].first).sequence_to(added[i].second);
      const std::vector<int64_t> wide(sequence.begin(), sequence.end());
      const auto fresh =
          reference_forward(unpack(*weights_), at::tensor(wide, at::kLong).unsqueeze(0)).logits[0];
      const double difference =
          max_difference(logits[static_cast<int64_t>(i)], fresh[fresh.size(0) - 1]);
      ASSERT_LE(difference, 1e-4) << "row " << added[i].first << " position "
                                  << sequence.size() - 1;
    }
  }

  void commit() {
    for (auto& [name, row] : rows_) {
      if (row.nodes.empty() || pick(4) == 0) {
        continue;
      }
      const int64_t node = pick(static_cast<int64_t>(row.nodes.size()) + 1) - 1;
      const auto path = row.path_to(node);
      model_.commit(path, name);
      row.kept = row.sequence_to(node);
      forget(row);
      ASSERT_EQ(model_.length(name), static_cast<int64_t>(row.kept.size()));
    }
  }

  RowId any_row() {
    return std::next(rows_.begin(), pick(static_cast<int64_t>(rows_.size())))->first;
  }

  void truncate() {
    const RowId name = any_row();
    Row& row = rows_.at(name);
    const int64_t length = pick(static_cast<int64_t>(row.kept.size()) + 1);
    model_.truncate(length, name);
    row.kept.resize(static_cast<size_t>(length));
    forget(row);
  }

  void change_rows() {
    const RowId name = any_row();
    if (rows_.size() == 4 || (name != 0 && pick(3) == 0)) {
      if (name != 0) {
        model_.close(name);
        rows_.erase(name);
      }
    } else if (pick(3) == 0) {
      rows_[model_.open()] = {};
    } else {
      const std::vector<Token>& kept = rows_.at(name).kept;
      const auto length = pick(static_cast<int64_t>(kept.size()) + 1);
      rows_[model_.fork(name, length)] = {{kept.begin(), kept.begin() + length}, {}, {}};
    }
  }

  static void forget(Row& row) {
    row.nodes.clear();
    row.parents.clear();
  }

  std::mt19937_64 random_;
  std::shared_ptr<const TransformerWeights> weights_;
  TransformerModel model_;
  std::map<RowId, Row> rows_ = {{0, {}}};
};

class HistoryTest : public testing::TestWithParam<std::string> {};

TEST_P(HistoryTest, EveryLogitEqualsAFreshForward) {
  at::set_num_threads(1);  // the tensors are tiny; waiting for a second thread costs more
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History(GetParam(), seed).run(60);
    if (HasFatalFailure()) {
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HistoryTest,
                         testing::Values("gemma-a", "gemma2-a", "gemma3-a", "llama-a", "mistral-a",
                                         "qwen2-a", "qwen3-a"),
                         ParameterName());

}  // namespace
}  // namespace specdec
