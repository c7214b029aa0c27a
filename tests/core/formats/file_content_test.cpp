#include "core/formats/file_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/error.h"
#include "core/formats/pickled_file.h"
#include "core/formats/safetensors.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(FileContentTest, SaysWhatAFileIs) {
  const TemporaryFolder folder;
  const auto advice = [&folder](std::string_view bytes) {
    return advice_for_content(folder.write("model.gguf", bytes));
  };
  EXPECT_THAT(advice(""), HasSubstr("is empty."));
  EXPECT_THAT(advice("GGML"), HasSubstr("does not begin with 'GGUF'"));
  EXPECT_THAT(advice("version https://git-lfs.github.com/spec/v1\noid"), HasSubstr("git lfs pull"));
  EXPECT_THAT(advice("PK\x03\x04zip"), HasSubstr("a zip archive, as PyTorch saves weights"));
  EXPECT_THAT(advice("\x80\x02pickle"), HasSubstr("a Python pickle"));
  EXPECT_THAT(advice("\x1f\x8bgz"), HasSubstr("decompress it"));
  EXPECT_THAT(advice("tjgg\x03"), HasSubstr("(GGJT), from before GGUF"));
  EXPECT_THAT(advice("<html><body>"), HasSubstr("a web page"));
  EXPECT_THAT(advice("{\"model_type\": 1}"), HasSubstr("a JSON text"));
}

TEST(FileContentTest, WeightsThatADownloadLeftOutAreSaidToBe) {
  const TemporaryFolder folder;
  const auto pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  for (const char* name : {"model.safetensors", "pytorch_model.bin"}) {
    for (const auto& [bytes, kind] : {std::pair{pointer, "a pointer of Git LFS, not the file"},
                                      std::pair{"<!doctype html><html>", "a web page"}}) {
      const auto path = folder.write(name, bytes);
      EXPECT_THAT(error_message<WeightsError>([&path] {
                    path.extension() == ".bin" ? (void)PickledFile(path)
                                               : (void)SafetensorsFile(path);
                  }),
                  AllOf(HasSubstr(path.string() + ": it is "), HasSubstr(kind)));
    }
  }
}

TEST(FileContentTest, ASafetensorsFileIsToldItsFolder) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "weights.bin";
  write_safetensors(path, {});
  EXPECT_THAT(advice_for_content(path),
              AllOf(HasSubstr("is a safetensors file"), HasSubstr("the model's config.json")));
  folder.write("config.json", "{}");
  EXPECT_THAT(advice_for_content(path),
              HasSubstr("Name its folder, which holds config.json: " + folder.path().string()));
}

}  // namespace
}  // namespace specdec
