// A node's bits depend on nothing but the keys that it sees, by position: in any tree, beside any
// rows, in any slots, with any number of threads they are those of decoding token by token.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "core/kernels/attention.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

/// Tokens of a row: what each one's query, key and value are, and the bias that its key gets from
/// everyone.
struct RowTokens {
  Tensor qkv;   // [n, width]
  Tensor bias;  // [n] or undefined
  std::vector<int64_t> parents;

  std::vector<int64_t> path_to(int64_t node) const {
    std::vector<int64_t> path;
    for (; node >= 0; node = parents[static_cast<size_t>(node)]) {
      path.insert(path.begin(), node);
    }
    return path;
  }
};

class AttentionConsistencyTest : public testing::TestWithParam<AttentionCase> {
 protected:
  ~AttentionConsistencyTest() override { at::set_num_threads(threads_); }

  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  /// Lengths of prompts: around chunks and pages, or any.
  int64_t random_length() {
    const int64_t borders[] = {1, GetParam().page_size, kAttentionChunk, 2 * kAttentionChunk};
    const int64_t border = borders[below(4)];
    return below(4) == 0 ? 1 + below(300) : std::max<int64_t>(1, border + below(5) - 3);
  }

  RowTokens random_tokens(int64_t count) {
    const AttentionCase& c = GetParam();
    RowTokens tokens;
    tokens.qkv = at::randn({count, (c.heads + 2 * c.kv_heads) * c.head_dim}, c.dtype);
    if (c.bias) {  // a few keys are hidden
      tokens.bias = at::randn({count}, at::kFloat);
      tokens.bias.masked_fill_(at::rand({count}) < 0.1, -std::numeric_limits<float>::infinity());
      tokens.bias[0] = 0;
    }
    return tokens;
  }

  /// A tree that is now deep, now broad, now a chain.
  RowTokens random_tree(int64_t count) {
    RowTokens tree = random_tokens(count);
    const int64_t reach = 1 + below(6);
    for (int64_t node = 0; node < count; ++node) {
      tree.parents.push_back(std::max<int64_t>(-1, node - 1 - below(reach)));
    }
    return tree;
  }

  /// The biases that new nodes of rows get: one row of columns each, the kept tokens' and then the
  /// pending ones'.
  static Tensor bias_of(const std::vector<RowTokens>& prompts, const std::vector<RowTokens>& trees,
                        const std::vector<int64_t>& rows) {
    if (!prompts.front().bias.defined()) {
      return {};
    }
    std::vector<Tensor> columns;
    int64_t widest = 0;
    for (const int64_t row : rows) {
      const auto r = static_cast<size_t>(row);
      columns.push_back(at::cat({prompts[r].bias, trees[r].bias}));
      widest = std::max(widest, columns.back().size(0));
    }
    Tensor bias = at::zeros({static_cast<int64_t>(rows.size()), widest});
    for (size_t i = 0; i < columns.size(); ++i) {
      bias[static_cast<int64_t>(i)].narrow(0, 0, columns[i].size(0)).copy_(columns[i]);
    }
    return bias;
  }

  static void keep(AttentionCache& cache, int64_t row, int64_t tokens) {
    std::vector<int64_t> path(static_cast<size_t>(tokens));
    std::iota(path.begin(), path.end(), 0);
    cache.kv().commit(row, path);
  }

  /// The node alone, after its kept ancestors: [heads, head_dim].
  Tensor decoded(const RowTokens& prompt, const RowTokens& tree, int64_t node) {
    AttentionCache cache(GetParam());
    const Tensor path = at::tensor(tree.path_to(node), at::kLong);
    const Tensor tokens = at::cat({prompt.qkv, tree.qkv.index_select(0, path)});
    const int64_t kept = tokens.size(0) - 1;
    cache.extend({}, {}, tokens.narrow(0, 0, kept));
    keep(cache, 0, kept);
    Tensor bias;
    if (prompt.bias.defined()) {
      bias = at::cat({prompt.bias, tree.bias.index_select(0, path)}).unsqueeze(0);
    }
    at::set_num_threads(1);
    return cache.attend(cache.extend({}, {}, tokens.narrow(0, kept, 1)), bias)[0];
  }

  int threads_ = at::get_num_threads();
  std::mt19937_64 random_{7};
};

TEST_P(AttentionConsistencyTest, TreesOfSeveralRowsHaveDecodingsBits) {
  at::manual_seed(5);
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    AttentionCache cache(GetParam());
    const int64_t row_count = 1 + below(3);
    std::vector<RowTokens> prompts, trees;
    std::vector<int64_t> prompt_rows;
    std::vector<Tensor> prompt_qkv;
    for (int64_t row = 0; row < row_count; ++row) {
      prompts.push_back(random_tokens(random_length()));
      trees.push_back(random_tree(1 + below(40)));
      prompt_rows.insert(prompt_rows.end(), static_cast<size_t>(prompts.back().qkv.size(0)), row);
      prompt_qkv.push_back(prompts.back().qkv);
    }
    cache.extend(prompt_rows, {}, at::cat(prompt_qkv));
    for (int64_t row = 0; row < row_count; ++row) {
      keep(cache, row, prompts[static_cast<size_t>(row)].qkv.size(0));
    }
    const bool half = below(2) == 0;  // the trees grow in two forwards
    for (const bool second : {false, true}) {
      std::vector<int64_t> rows, parents, nodes;
      std::vector<Tensor> qkv;
      for (int64_t row = 0; row < row_count; ++row) {
        const RowTokens& tree = trees[static_cast<size_t>(row)];
        const auto count = static_cast<int64_t>(tree.parents.size());
        const int64_t split = half ? count / 2 : count;
        for (int64_t node = second ? split : 0; node < (second ? count : split); ++node) {
          rows.push_back(row);
          parents.push_back(tree.parents[static_cast<size_t>(node)]);
          nodes.push_back(node);
          qkv.push_back(tree.qkv[node]);
        }
      }
      if (rows.empty()) {
        continue;
      }
      const Tensor queries = cache.extend(rows, parents, at::stack(qkv));
      at::set_num_threads(1 + static_cast<int>(below(3)));
      const Tensor out = cache.attend(queries, bias_of(prompts, trees, rows));
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto row = static_cast<size_t>(rows[i]);
        ASSERT_TRUE(
            at::equal(out[static_cast<int64_t>(i)], decoded(prompts[row], trees[row], nodes[i])))
            << "row " << row << ", prompt " << prompts[row].qkv.size(0) << ", node " << nodes[i];
      }
    }
  }
}

TEST_P(AttentionConsistencyTest, APrefillHasDecodingsBits) {
  at::manual_seed(6);
  const int64_t length = 2 * kAttentionChunk + 3;
  AttentionCache cache(GetParam());
  const RowTokens prompt = random_tokens(1);
  RowTokens rest = random_tokens(length - 1);
  for (int64_t node = 0; node < length - 1; ++node) {
    rest.parents.push_back(node - 1);
  }
  const Tensor queries = cache.extend({}, {}, at::cat({prompt.qkv, rest.qkv}));
  Tensor bias;
  if (prompt.bias.defined()) {
    bias = at::cat({prompt.bias, rest.bias}).expand({length, length}).contiguous();
  }
  at::set_num_threads(2);
  const Tensor out = cache.attend(queries, bias);
  for (int64_t node = 0; node < length - 1; node += 1 + below(9)) {
    ASSERT_TRUE(at::equal(out[node + 1], decoded(prompt, rest, node))) << node;
  }
}

TEST_P(AttentionConsistencyTest, BitsDoNotDependOnThePageSize) {
  at::manual_seed(8);
  const RowTokens prompt = random_tokens(kAttentionChunk + 21);
  const RowTokens tree = random_tree(9);
  Tensor first;
  for (const int64_t page_size : {1, 4, 7, 16, 20, 48, 64, 256}) {
    AttentionCase c = GetParam();
    if (page_size % kv_key_group(c.format) != 0) {
      continue;
    }
    c.page_size = page_size;
    AttentionCache cache(c);
    cache.extend({}, {}, prompt.qkv);
    keep(cache, 0, prompt.qkv.size(0));
    const Tensor queries = cache.extend({}, tree.parents, tree.qkv);
    const Tensor out =
        cache.attend(queries, bias_of({prompt}, {tree}, {0, 0, 0, 0, 0, 0, 0, 0, 0}));
    first = first.defined() ? first : out;
    EXPECT_TRUE(at::equal(out, first)) << page_size;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionConsistencyTest,
    testing::Values(AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false, 16},
                    AttentionCase{at::kFloat, 8, 1, 26, 21, 50, false, 4},
                    AttentionCase{at::kFloat, 3, 3, 70, 130, 0, true, 16},
                    AttentionCase{at::kFloat, 6, 2, 16, 128, 2, true, 20},
                    AttentionCase{at::kDouble, 6, 2, 24, 100, 1.5, true, 16},
                    AttentionCase{at::kDouble, 5, 1, 10, 0, 0, false, 7},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 7, 1, 38, 33, 3, true, 4, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kFloat16},
                    AttentionCase{at::kFloat, 7, 1, 38, 33, 3, true, 4, KvFormat::kFp8E4m3},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 7, 1, 38, 33, 3, true, 4, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kQ4},
                    AttentionCase{at::kFloat, 7, 1, 38, 33, 3, true, 4, KvFormat::kQ4},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kHierarchical},
                    AttentionCase{at::kFloat, 7, 1, 72, 33, 3, true, 4, KvFormat::kQ3},
                    AttentionCase{at::kFloat, 7, 1, 38, 33, 3, true, 4, KvFormat::kHierarchical, 0,
                                  KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kQ3, 0,
                                  KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 4, 2, 64, 9, 0, false, 16, KvFormat::kNative, 4},
                    AttentionCase{at::kFloat, 7, 1, 38, 33, 3, true, 4, KvFormat::kQ8, 140},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, true, 4, KvFormat::kQ4, 0,
                                  KvRotation::kHadamard, 5},
                    AttentionCase{at::kFloat, 7, 1, 38, 133, 3, false, 16, KvFormat::kFp8E4m3, 0,
                                  KvRotation::kNone, 48},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 32, KvFormat::kKivi2, 0,
                                  KvRotation::kNone, 44},
                    AttentionCase{at::kFloat, 7, 1, 72, 133, 3, true, 64, KvFormat::kKivi4, 0,
                                  KvRotation::kNone, 60}),
    ParameterName());

}  // namespace
}  // namespace specdec
