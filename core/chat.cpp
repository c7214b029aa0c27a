#include "core/chat.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/jinja/template.h"
#include "core/tokenizers/special_encoder.h"

namespace specdec {
namespace {

constexpr const char* kChatAsPlainText =
    "Give the turns as plain text instead: leave out --chat (in a config: chat: false).";

/// A format for tokenizers that come without a template.
struct KnownFormat {
  std::string_view piece;  ///< that begins a turn
  std::string_view source;
};
constexpr KnownFormat kTurnFormats[] = {
    {"<start_of_turn>",
     "{{ bos_token }}{% for message in messages %}"
     "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
     "{{ raise_exception('user and model take turns, the user first') }}{% endif %}"
     "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
     "{{ message.content | trim }}<end_of_turn>\n"
     "{% endfor %}<start_of_turn>model\n\n"},
    {"<|im_start|>",
     "{% for message in messages %}<|im_start|>{{ message.role }}\n"
     "{{ message.content }}<|im_end|>\n"
     "{% endfor %}<|im_start|>assistant\n\n"},
    {"<|start_header_id|>",
     "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}"
     "<|end_header_id|>\n\n{{ message.content | trim }}<|eot_id|>"
     "{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n\n"}};

/// What transformers gives a template beside what is given here: there may be such tokens. There is
/// no strftime_now, so that results do not depend on the day.
const std::vector<std::string>& unknown_variables() {
  static const std::vector<std::string> all = {"unk_token",  "sep_token",
                                               "pad_token",  "cls_token",
                                               "mask_token", "additional_special_tokens"};
  return all;
}

std::string_view template_source(const Tokenizer& tokenizer) {
  if (!tokenizer.chat_template().empty()) {
    return tokenizer.chat_template();
  }
  for (const KnownFormat& known : kTurnFormats) {
    if (tokenizer.find_piece(known.piece)) {
      return known.source;
    }
  }
  throw Error(
      fmt::format("the tokenizer has no piece <start_of_turn> (nor <|im_start|>, nor "
                  "<|start_header_id|>), so it cannot write chat turns. {}",
                  kChatAsPlainText));
}

JinjaValue message_of(const ChatTurn& turn) {
  if (turn.role != "user" && turn.role != "model" && turn.role != "system") {
    throw Error(
        fmt::format("unknown role '{}' of a chat turn; known: user, model, system.", turn.role));
  }
  JinjaDict message;
  message.entries = {{"role", jinja_text(turn.role == "model" ? "assistant" : turn.role)},
                     {"content", JinjaText::of_turn(turn.text)}};
  return std::make_shared<const JinjaDict>(std::move(message));
}

/// A part of the tools, whose texts are no template's: control pieces written there are text.
JinjaValue value_of(const nlohmann::ordered_json& json, JinjaBudget& budget) {
  if (json.is_string()) {
    return JinjaText::of_turn(json.get_ref<const std::string&>());
  }
  if (json.is_boolean()) {
    return json.get<bool>();
  }
  if (json.is_null()) {
    return JinjaNone{};
  }
  if (json.is_array()) {
    std::vector<JinjaValue> all;
    for (const auto& one : json) {
      all.push_back(value_of(one, budget));
    }
    return jinja_list(std::move(all));
  }
  if (json.is_object()) {
    std::vector<JinjaDict::Entry> entries;
    for (const auto& [key, one] : json.items()) {
      entries.emplace_back(JinjaValue(JinjaText::of_turn(key)), value_of(one, budget));
    }
    return jinja_dict(std::move(entries), budget);
  }
  if (json.is_number_float()) {
    return json.get<double>();
  }
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (json.is_number_unsigned() && json.get<uint64_t>() > kLargest) {
    throw Error(fmt::format("the number {} has more than 64 bits.", json.dump()));
  }
  return json.get<int64_t>();
}

JinjaValue tools_of(std::string_view tools) {
  if (tools.empty()) {
    return JinjaNone{};
  }
  try {
    JinjaBudget budget;
    return value_of(nlohmann::ordered_json::parse(tools), budget);
  } catch (const std::exception& error) {
    throw Error(fmt::format("the tools cannot be given to the chat template: {} {}", error.what(),
                            kChatAsPlainText));
  }
}

JinjaTemplate::Variables variables_of(const Tokenizer& tokenizer,
                                      const std::vector<ChatTurn>& turns, std::string_view tools) {
  std::vector<JinjaValue> messages;
  for (const ChatTurn& turn : turns) {
    messages.push_back(message_of(turn));
  }
  JinjaTemplate::Variables variables = {{"messages", jinja_list(std::move(messages))},
                                        {"add_generation_prompt", true},
                                        {"tools", tools_of(tools)},
                                        {"documents", JinjaNone{}}};
  const auto add_token = [&](const char* name, std::optional<Token> token) {
    if (token) {
      variables.emplace(name, jinja_text(tokenizer.piece(*token)));
    }
  };
  add_token("bos_token", tokenizer.bos());
  add_token("eos_token", tokenizer.eos());
  return variables;
}

JinjaText rendered(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns,
                   std::string_view tools) {
  const std::string_view source = template_source(tokenizer);
  const JinjaTemplate::Variables variables = variables_of(tokenizer, turns, tools);
  try {
    return JinjaTemplate(source).render(variables, unknown_variables());
  } catch (const Error& error) {
    const bool has_file = !tokenizer.chat_template().empty();
    const std::string_view file = has_file ? tokenizer.chat_template_file() : std::string_view();
    throw Error(fmt::format("{}{}the checkpoint's chat template, {} {}", file,
                            file.empty() ? "" : ": ", error.what(), kChatAsPlainText));
  }
}

}  // namespace

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns,
                               std::string_view tools) {
  return SpecialEncoder(tokenizer).encode(rendered(tokenizer, turns, tools));
}

}  // namespace specdec
