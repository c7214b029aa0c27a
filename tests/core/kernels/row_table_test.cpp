#include "core/kernels/row_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "tests/support/max_difference.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

TEST(RowTableTest, RowsAreScaledAndBeyondTheTableComesRowZero) {
  const Tensor rows = at::randn({5, 7});
  const RowTable table(rows);
  EXPECT_EQ(table.rows(), 5);
  EXPECT_EQ(table.width(), 7);
  const Tensor ids = at::tensor({4, 0, 9, 2}, at::kInt);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    Tensor out = at::empty({4, 7}, dtype);
    table.look_up(ids, 3.0, out);
    EXPECT_LE(max_difference(out, rows.index_select(0, at::tensor({4, 0, 0, 2})) * 3.0), 1e-6);
  }
  Tensor narrow = at::empty({4, 6});
  EXPECT_THROW(table.look_up(ids, 1.0, narrow), InternalError);
}

TEST(RowTableTest, RowsOfAFileStayInIt) {
  const TemporaryFolder folder;
  const std::pair<at::ScalarType, DType> types[] = {
      {at::kFloat, DType::kF32}, {at::kBFloat16, DType::kBF16}, {at::kHalf, DType::kF16}};
  for (const auto& [type, stored] : types) {
    const Tensor rows = at::randn({6, 5}).to(type);
    const TensorToWrite tensor{
        "table",
        stored,
        {6, 5},
        std::as_bytes(std::span(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes()))};
    write_safetensors(folder.path() / "model.safetensors", {{tensor}});
    const auto files = std::make_shared<const CheckpointTensors>(folder.path());
    const RowTable table(files, *files->find("table"));
    EXPECT_EQ(table.bytes(), 0);
    Tensor out = at::empty({2, 5});
    table.look_up(at::tensor({5, 1}, at::kInt), 1.0, out);
    EXPECT_TRUE(at::equal(out, rows.index_select(0, at::tensor({5, 1})).to(at::kFloat)));
  }
}

}  // namespace
}  // namespace specdec
