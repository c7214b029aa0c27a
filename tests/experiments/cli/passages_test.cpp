#include "experiments/cli/passages.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/atomic_file.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/small_byte_level_model.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

Passage passage_of(const std::string& text, std::shared_ptr<const Tokenizer> tokenizer) {
  const TemporaryFolder folder;
  write_file(folder.path() / "text.txt", text);
  ModelFiles files;
  files.config.bos_id = -1;
  files.tokenizer = std::move(tokenizer);
  return read_passages(folder.path() / "text.txt", files).front();
}

TEST(PassagesTest, BytesAreThoseOfTheTokensThatAreScored) {
  const std::vector<std::string> pieces = {"The", " cat"};
  const Passage without_bos = passage_of("The cat", std::make_shared<LetterTokenizer>(pieces));
  EXPECT_EQ(without_bos.tokens, (std::vector<Token>{0, 1}));
  EXPECT_EQ(without_bos.bytes, 4) << "the first token is context";

  ByteLevelModel model = small_byte_level_model({"<bos>"});
  model.bos = 258;
  model.adds_bos = true;
  const Passage after_bos = passage_of("cat", byte_level_tokenizer(model, "test"));
  EXPECT_EQ(after_bos.tokens, (std::vector<Token>{258, 'c', 'a', 't'}));
  EXPECT_EQ(after_bos.bytes, 3);
}

}  // namespace
}  // namespace specdec
