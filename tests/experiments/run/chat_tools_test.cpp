#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/experiments/run/experiment_fixture.h"
#include "tests/experiments/run/text_model.h"

namespace specdec {
namespace {

class ChatToolsTest : public ExperimentFixture {};

TEST_F(ChatToolsTest, TemplatesAreGivenThoseOfThePrompt) {
  const auto model = folder_.path() / "model";
  write_text_model(model);
  folder_.write("model/chat_template.jinja",
                "{{ bos_token }}{{ tools | tojson if tools }}{{ messages[0].content }}");
  folder_.write("t.jsonl",
                "{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"tools\": [{\"name\": \"f\"}]}\n");
  std::vector<std::string> sets = {"model.weights=" + model.string(), "prompts.file=t.jsonl",
                                   "strategies.draft.drafter.weights=" + model.string(),
                                   "repeats=1"};
  const auto lengths = [&](const std::string& out) {
    (void)run(sets, out);
    std::map<std::string, int64_t> all;
    for (const auto& record : records(out)) {
      all[record.key.prompt_id] = record.prompt_tokens;
    }
    return all;
  };
  auto plain = lengths("plain");
  EXPECT_EQ(plain["1"], plain["2"]);
  sets.emplace_back("prompts.chat=true");
  auto chat = lengths("chat");
  EXPECT_GT(chat["2"], chat["1"] + 4);
}

}  // namespace
}  // namespace specdec
