#include "core/formats/file_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/formats/pickle/pickled_file.h"
#include "core/formats/safetensors.h"
#include "core/formats/sentencepiece_model.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_config.h"
#include "core/formats/tokenizer_json_sax.h"
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

TEST(FileContentTest, PagesAreKnownInAnySpelling) {
  const std::string long_comment = "<!-- " + std::string(3000, 'x') + " -->";
  for (const std::string& page : std::vector<std::string>{
           "<!DOCTYPE html>", "<!doctype HTML PUBLIC \"-//W3C//DTD\">", "<HTML>", "<hTmL lang=en>",
           "\xEF\xBB\xBF<!DOCTYPE html>", " \t\r\n\n<html>", "<!-- saved from url -->\n<html>",
           "<!-- a --> <!-- b -->\r\n<!Doctype Html>", long_comment + "<html>",
           "<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC>", "<head><title>404</title>",
           "<title>Not found</title>", "<BODY>"}) {
    EXPECT_THAT(placeholder_kind(page), HasSubstr("a web page")) << page;
  }
  EXPECT_THAT(placeholder_kind("<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>"),
              HasSubstr("a server's message in XML"));
  for (const std::string& text : std::vector<std::string>{
           "", " ", "<", "<s>", "<|im_start|>{{ x }}", "{\"a\": \"<html>\"}", "html", "<!-- <html>",
           "{# <!DOCTYPE html> #}", "<bos>", "\xEF\xBB\xBF{}", "<?xml", "<!doctype x>",
           std::string("<\0\0\0\0\0\0\0{}", 10), "a <html>", "version 1", "<header>", "<bodyText>",
           "<titles>"}) {
    EXPECT_EQ(placeholder_kind(text), "") << text;
  }
}

TEST(FileContentTest, TextsThatADownloadLeftOutAreSaidToBe) {
  const TemporaryFolder folder;
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  for (const std::string& bytes : {pointer, std::string("\n<HTML>\n")}) {
    const auto says = AllOf(HasSubstr("file: it is a "), HasSubstr("Copy or download it again"));
    EXPECT_THAT(error_message<WeightsError>([&] { (void)parse_strict_json(bytes, "file"); }), says);
    EXPECT_THAT(error_message<WeightsError>([&] { (void)split_tokenizer_json(bytes, "file"); }),
                says);
    EXPECT_THAT(
        error_message<WeightsError>([&] { (void)parse_sentencepiece_model(bytes, "file"); }), says);
    const auto jinja = folder.write("chat_template.jinja", bytes);
    EXPECT_THAT(
        error_message<WeightsError>([&] { (void)read_tokenizer_config(folder.path()); }),
        AllOf(HasSubstr(jinja.string() + ": it is a "), HasSubstr("Copy or download it again")));
  }
  folder.write("chat_template.jinja", "<|im_start|>{{ messages }}");
  EXPECT_EQ(read_tokenizer_config(folder.path()).chat_template, "<|im_start|>{{ messages }}");
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
