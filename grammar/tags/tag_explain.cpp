#include "grammar/tags/tag_explain.h"

#include <fmt/format.h>

namespace specdec {
namespace {

constexpr size_t kShownTexts = 8;

/// The texts below a node.
std::vector<std::string> texts_below(const TagTexts& texts, TagTexts::Node from) {
  std::vector<std::string> found;
  const GrowingTrie& trie = texts.trie();
  for (TagTexts::Node node = 1; node < trie.size(); ++node) {
    TagTexts::Node above = node;
    while (trie.length(above) > trie.length(from)) {
      above = trie.parent(above);
    }
    if (above == from && node != from && !texts.ends(node).empty()) {
      found.push_back(symbols_text(texts.symbols(node)));
    }
  }
  return found;
}

std::string lines_of(const std::vector<std::string>& texts, size_t skipped, const char* line) {
  std::string lines;
  for (size_t i = 0; i < texts.size() && i < kShownTexts; ++i) {
    lines += fmt::format(fmt::runtime(line), texts[i].substr(std::min(skipped, texts[i].size())));
  }
  if (texts.size() > kShownTexts) {
    lines += fmt::format("... and {} more texts\n", texts.size() - kShownTexts);
  }
  return lines;
}

std::string explain_text(const TagProgram& program, const TagThread& thread) {
  const TagTexts& texts = program.start(thread.id).texts;
  const std::vector<std::string> below = texts_below(texts, thread.at);
  const std::string before = symbols_text(texts.symbols(thread.at));
  return before.empty() ? lines_of(below, 0, "the text '{}'\n")
                        : lines_of(below, before.size(), "the rest of the text: '{}'\n");
}

std::string explain_free(const TagProgram& program, const TagThread& thread) {
  const TagProgram::Free& free = program.free(thread.id);
  const TagTexts& texts = free.search.texts();
  if (free.search.is_committed(thread.at)) {
    const std::string before = symbols_text(texts.symbols(thread.at));
    return lines_of(texts_below(texts, thread.at), before.size(), "the rest of the text: '{}'\n");
  }
  std::string lines = !unpack_character(thread.more).idle() ? "the rest of a character\n"
                      : free.may_end                        ? "any text, or its end\n"
                                                            : "any text\n";
  lines += lines_of(texts_below(texts, GrowingTrie::kRoot), 0, "after '{}': what follows it\n");
  const uint32_t depth = texts.trie().length(thread.at);
  return lines + (depth == 0 ? "" : fmt::format("{} bytes of a tag stand here\n", depth));
}

}  // namespace

std::string explain_tags(const TagProgram& program, const std::vector<TagThread>& threads) {
  std::string lines;
  for (const TagThread& thread : threads) {
    switch (thread.kind) {
      case TagThread::kEnd:
        lines += "the end of the text\n";
        break;
      case TagThread::kText:
        lines += explain_text(program, thread);
        break;
      case TagThread::kFree:
        lines += explain_free(program, thread);
        break;
      default:
        lines += program.automaton(thread.id).explain(thread.at);
    }
  }
  return lines;
}

}  // namespace specdec
