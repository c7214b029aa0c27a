#include "grammar/tags/tool_calls.h"

namespace specdec {

namespace {

ToolCallStyle gemma3_style() {
  return {
      .name = "gemma3",
      .models = "Gemma 3, told to call by JSON",
      .begin = "{\"name\": \"",
      .arguments = "\", \"parameters\": ",
      .end = "}",
  };
}

ToolCallStyle gemma4_style() {
  return {
      .name = "gemma4",
      .models = "Gemma 4",
      .tokens = {"<|tool_call>", "<tool_call|>", "<|\"|>", "<|channel>", "<channel|>"},
      .begin = "<|tool_call>call:",
      .arguments = "",
      .end = "<tool_call|>",
      .delimiters = {"<|\"|>", "<tool_call|>", "<|tool_call>"},
      .parallel = true,
      .notation = ToolCallStyle::Notation::kGemma,
      .thought_begins = {"<|channel>thought\n"},
      .thought_end = "<channel|>",
  };
}

ToolCallStyle harmony_style() {
  return {
      .name = "harmony",
      .models = "gpt-oss",
      .tokens = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"},
      .begin = "<|channel|>commentary to=functions.",
      .arguments = " <|constrain|>json<|message|>",
      .end = "<|call|>",
      .whitespace = "any",
      .thought_begins = {"<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>"},
      .thought_end = "<|end|><|start|>assistant",
      .many_thoughts = true,
      .answer_begin = "<|channel|>final<|message|>",
  };
}

ToolCallStyle hermes_style() {
  return {
      .name = "hermes",
      .models = "ChatML models that were tuned on Hermes' calls, Qwen 2.5",
      .tokens = {"<tool_call>", "</tool_call>"},
      .begin = "<tool_call>\n{\"name\": \"",
      .arguments = "\", \"arguments\": ",
      .end = "}\n</tool_call>",
      .delimiters = {"</tool_call>"},
      .parallel = true,
      .separator = "\n",
  };
}

ToolCallStyle llama3_style() {
  return {
      .name = "llama3",
      .models = "Llama 3.1 to 3.3",
      .begin = "{\"name\": \"",
      .arguments = "\", \"parameters\": ",
      .end = "}",
  };
}

ToolCallStyle qwen3_style() {
  return {
      .name = "qwen3",
      .models = "Qwen 3",
      .tokens = {"<tool_call>", "</tool_call>", "<think>", "</think>"},
      .begin = "<tool_call>\n{\"name\": \"",
      .arguments = "\", \"arguments\": ",
      .end = "}\n</tool_call>",
      .delimiters = {"</tool_call>"},
      .parallel = true,
      .separator = "\n",
      .thought_begins = {"<think>"},
      .thought_end = "</think>\n\n",
  };
}

ToolCallStyle qwen3_coder_style() {
  return {
      .name = "qwen3_coder",
      .models = "Qwen 3 Coder",
      .tokens = {"<tool_call>", "</tool_call>"},
      .begin = "<tool_call>\n<function=",
      .arguments = ">\n",
      .end = "</function>\n</tool_call>",
      .delimiters = {"</parameter>", "<parameter=", "</function>", "</tool_call>"},
      .parallel = true,
      .separator = "\n",
      .notation = ToolCallStyle::Notation::kXml,
  };
}

ToolCallStyle smollm2_style() {
  return {
      .name = "smollm2",
      .models = "SmolLM2 1.7B",
      .begin = "{\"name\": \"",
      .arguments = "\", \"arguments\": ",
      .end = "}",
      .delimiters = {"</tool_call>"},
      .parallel = true,
      .separator = ", ",
      .section_begin = "<tool_call>[",
      .section_end = "]</tool_call>",
  };
}

}  // namespace

// Where each is documented: docs/grammar.md#tool-calls.
const std::vector<ToolCallStyle>& tool_call_styles() {
  static const std::vector<ToolCallStyle> styles = {
      gemma3_style(), gemma4_style(), harmony_style(),     hermes_style(),
      llama3_style(), qwen3_style(),  qwen3_coder_style(), smollm2_style()};
  return styles;
}

std::string tool_call_begin(const std::string& name) {
  for (const ToolCallStyle& style : tool_call_styles()) {
    if (style.name == name) {
      return style.section_begin + style.begin;
    }
  }
  return "";
}

}  // namespace specdec
