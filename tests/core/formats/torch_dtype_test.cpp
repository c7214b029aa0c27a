#include "core/formats/torch_dtype.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

std::string read_dtype(const char* text) {
  const auto parsed = nlohmann::json::parse(text);
  return torch_dtype(JsonKeys(parsed, "c.json"));
}

TEST(TorchDtypeTest, TheNewNameCountsBeforeTheOldOne) {
  EXPECT_EQ(read_dtype("{}"), "");
  EXPECT_EQ(read_dtype(R"({"dtype": null})"), "");
  EXPECT_EQ(read_dtype(R"({"torch_dtype": "bfloat16"})"), "bfloat16");
  EXPECT_EQ(read_dtype(R"({"dtype": "float16", "torch_dtype": "bfloat16"})"), "float16");
  EXPECT_EQ(read_dtype(R"({"dtype": "float8_e4m3fn"})"), "float8_e4m3fn");
  EXPECT_EQ(read_dtype(R"({"dtype": "half"})"), "half");
  EXPECT_EQ(read_dtype(R"({"dtype": {"text_config": "float16"}})"), "");
}

TEST(TorchDtypeTest, OtherNamesAreMistakes) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"dtype": "x"})", "c.json: 'dtype' is \"x\", which is no type of PyTorch's; known are"},
      {R"({"dtype": "float16", "torch_dtype": "x"})", "c.json: 'torch_dtype' is \"x\""},
      {R"({"torch_dtype": "torch.float"})", "no error"},
      {R"({"torch_dtype": "torch.x"})", "'torch_dtype' is \"torch.x\""},
      {R"({"dtype": ""})", "no error"},
      {R"({"dtype": 16})", "c.json: 'dtype' should be a string, but is 16."},
      {R"({"dtype": ["float16"]})", "'dtype' should be a string, but is a list."},
      {R"({"dtype": {"text_config": "x"}})", "'dtype' is \"x\""}};
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(error_message<WeightsError>([text = text] { (void)read_dtype(text); }),
                HasSubstr(expected))
        << text;
  }
}

}  // namespace
}  // namespace specdec
