#include "experiments/run/prompts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_file.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

constexpr size_t kMaxMistakes = 10;
constexpr int kMaxLineDepth = 64;

/// The object of a line, or nothing and `message` says why.
nlohmann::json parse_line(std::string_view line, std::string& message) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open;  // keys of the objects that a value lies in
  const auto watch = [&](int depth, Event event, const nlohmann::json& parsed) {
    if (depth > kMaxLineDepth) {
      throw ConfigError(fmt::format("nested deeper than {} levels", kMaxLineDepth));
    }
    if (event == Event::object_start) {
      open.emplace_back();
    } else if (event == Event::object_end) {
      open.pop_back();
    } else if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second) {
      throw ConfigError(
          fmt::format("the key '{}' stands twice in one object", parsed.get<std::string>()));
    }
    return true;
  };
  try {
    auto json = nlohmann::json::parse(line, watch);
    if (json.is_object()) {
      return json;
    }
    message = fmt::format("expected an object such as {{\"prompt\": \"...\"}}, found {}",
                          json.type_name());
  } catch (const nlohmann::json::exception& exception) {
    message =
        plain_json_message(exception) + "; each line is an object such as {\"prompt\": \"...\"}";
  } catch (const ConfigError& error) {
    message = error.what();
  }
  return {};
}

std::string read_turns(const nlohmann::json& json, Prompt& prompt) {
  const auto turns = json.find("turns");
  const auto text = json.find("prompt");
  const auto tokens = json.find("tokens");
  const int given = int{turns != json.end()} + int{text != json.end()} + int{tokens != json.end()};
  if (given != 1) {
    return given == 0 ? "has none of the keys 'turns', 'prompt', 'tokens'"
                      : "has more than one of the keys 'turns', 'prompt', 'tokens'";
  }
  if (text != json.end()) {
    if (!text->is_string()) {
      return fmt::format("'prompt' must be a text, not {}", text->type_name());
    }
    prompt.turns = {text->get<std::string>()};
  } else if (turns != json.end()) {
    if (!turns->is_array() || turns->empty()) {
      return "'turns' must be a list of at least one text";
    }
    for (const auto& turn : *turns) {
      if (!turn.is_string()) {
        return fmt::format("'turns' must hold texts, not {}", turn.type_name());
      }
      prompt.turns.push_back(turn.get<std::string>());
    }
  } else {
    if (!tokens->is_array() || tokens->empty()) {
      return "'tokens' must be a list of at least one id";
    }
    for (const auto& token : *tokens) {
      if (!token.is_number_unsigned() ||
          token.get<uint64_t>() > uint64_t{std::numeric_limits<Token>::max()}) {
        return "'tokens' must hold whole numbers of at least 0";
      }
      prompt.tokens.push_back(token.get<Token>());
    }
  }
  for (const auto& turn : prompt.turns) {
    if (turn.empty()) {
      return "a prompt is empty";
    }
  }
  return "";
}

std::string read_labels(const nlohmann::json& json, size_t line_number, Prompt& prompt) {
  if (const auto category = json.find("category"); category != json.end()) {
    if (!category->is_string()) {
      return fmt::format("'category' must be a text, not {}", category->type_name());
    }
    prompt.category = category->get<std::string>();
  }
  prompt.id = std::to_string(line_number);
  for (const char* key : {"question_id", "id"}) {
    const auto id = json.find(key);
    if (id == json.end()) {
      continue;
    }
    if (!id->is_string() && !id->is_number_integer()) {
      return fmt::format("'{}' must be a text or a whole number, not {}", key, id->type_name());
    }
    prompt.id = id->is_string() ? id->get<std::string>() : id->dump();
  }
  return "";
}

/// Reads a schema again from the line: a schema's numbers and the order of its members stay as
/// written.
std::string read_schema(const nlohmann::json& json, std::string_view line, Prompt& prompt) {
  const auto schema = json.find("schema");
  if (schema == json.end()) {
    return "";
  }
  if (!schema->is_object() && !schema->is_boolean()) {
    return fmt::format("'schema' must be a JSON Schema (an object, true or false), not {}",
                       schema->type_name());
  }
  try {
    prompt.schema = to_json(*parse_json(line, "line").find("schema"));
  } catch (const GrammarError& error) {
    return error.what();
  }
  return "";
}

/// Reads tools again from the line, as read_schema does.
std::string read_tools(const nlohmann::json& json, std::string_view line, Prompt& prompt) {
  const auto tools = json.find("tools");
  if (tools == json.end()) {
    return "";
  }
  if (!tools->is_array() || prompt.turns.empty()) {
    return tools->is_array()
               ? "'tools' needs texts, and the prompt is given as tokens"
               : fmt::format("'tools' must be a list of tools, not {}", tools->type_name());
  }
  try {
    prompt.tools = to_json(*parse_json(line, "line").find("tools"));
  } catch (const GrammarError& error) {
    return error.what();
  }
  return "";
}

std::string read_adapter_names(const nlohmann::json& json, Prompt& prompt) {
  const auto adapter = json.find("adapter");
  if (adapter == json.end()) {
    return "";
  }
  const auto list = adapter->is_array() ? *adapter : nlohmann::json::array({*adapter});
  for (const auto& name : list) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
      return "'adapter' must be the name of an adapter of model.adapters, or a list of names";
    }
    prompt.adapters.push_back(name.get<std::string>());
  }
  return list.empty() ? "'adapter' is an empty list: leave it out" : "";
}

std::optional<AnswerKey> read_answer_key(const std::string& scorer,
                                         const nlohmann::json& reference) {
  if (reference.is_null()) {
    return std::nullopt;
  }
  if (!reference.is_string() && !reference.is_number()) {
    throw ConfigError(
        fmt::format("a 'reference' must be a text or a number, not {}", reference.type_name()));
  }
  return make_answer_key(scorer,
                         reference.is_string() ? reference.get<std::string>() : reference.dump());
}

std::string read_answer_keys(const nlohmann::json& json, Prompt& prompt) {
  const auto scorer = json.find("scorer");
  if (scorer == json.end()) {
    return "";
  }
  if (!scorer->is_string()) {
    return fmt::format("'scorer' must be number, regex or program, not {}", scorer->type_name());
  }
  if (prompt.turns.empty()) {
    return "'scorer' needs texts, and the prompt is given as tokens";
  }
  const auto reference = json.find("reference");
  if (reference == json.end()) {
    return "'scorer' needs a 'reference' to compare answers with";
  }
  const auto list = reference->is_array() ? *reference : nlohmann::json::array({*reference});
  if (list.size() != prompt.turns.size()) {
    return fmt::format("'reference' has {} entries for {} turns; use null where none is scored",
                       list.size(), prompt.turns.size());
  }
  try {
    for (const auto& each : list) {
      prompt.answer_keys.push_back(read_answer_key(scorer->get<std::string>(), each));
    }
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// Files made for other tools have other keys, which are left alone; but one that is nearly a known
/// key is a misspelling, which would be lost.
std::string read_other_keys(const nlohmann::json& json, Prompt& prompt) {
  static const std::vector<std::string> kKnown = {"turns",  "prompt",      "tokens", "category",
                                                  "id",     "question_id", "schema", "tools",
                                                  "scorer", "reference",   "adapter"};
  for (const auto& [key, value] : json.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) {
      continue;
    }
    if (const auto near = misspelled_name(key, kKnown); !near.empty()) {
      return fmt::format("unknown key '{}'; did you mean '{}'? Known: {}", key, near,
                         join_names(kKnown));
    }
    prompt.unread_keys.push_back(key);
  }
  return "";
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  std::vector<Prompt> prompts;
  std::vector<std::string> mistakes;
  std::set<std::string> ids;
  uint32_t number = 0;
  size_t line_number = 0;
  for (size_t begin = 0; begin < text.size() && mistakes.size() < kMaxMistakes;) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    Prompt prompt;
    std::string message;
    const nlohmann::json json = parse_line(line, message);
    if (message.empty()) {
      message = read_other_keys(json, prompt);
    }
    if (message.empty()) {
      message = read_turns(json, prompt);
    }
    if (message.empty()) {
      message = read_labels(json, line_number, prompt);
    }
    if (message.empty()) {
      message = read_schema(json, line, prompt);
    }
    if (message.empty()) {
      message = read_tools(json, line, prompt);
    }
    if (message.empty()) {
      message = read_adapter_names(json, prompt);
    }
    if (message.empty()) {
      message = read_answer_keys(json, prompt);
    }
    if (message.empty() && !ids.insert(prompt.id).second) {
      message = fmt::format("the id '{}' is used twice", prompt.id);
    }
    if (!message.empty()) {
      mistakes.push_back(fmt::format("{}:{}: {}", file.string(), line_number, message));
      continue;
    }
    prompt.number = number;
    number += std::max<uint32_t>(1, static_cast<uint32_t>(prompt.turns.size()));
    prompts.push_back(std::move(prompt));
  }
  if (!mistakes.empty()) {
    throw ConfigError(fmt::format("{}", fmt::join(mistakes, "\n")));
  }
  if (prompts.empty()) {
    throw ConfigError(fmt::format("{}: holds no prompts", file.string()));
  }
  return prompts;
}

std::vector<Token> encode_prompt(const Tokenizer& tokenizer, const std::vector<ChatTurn>& history,
                                 bool chat, Token bos, std::string_view tools) {
  SPECDEC_CHECK(!history.empty(), "a prompt needs a turn");
  if (chat) {
    return encode_chat(tokenizer, history, tools);
  }
  std::vector<Token> tokens;
  const Token first = tokenizer.bos().value_or(bos);
  if (tokenizer.adds_bos() && first >= 0) {
    tokens.push_back(first);
  }
  std::string plain = history.front().text;
  for (size_t i = 1; i < history.size(); ++i) {
    plain += "\n\n" + history[i].text;
  }
  const auto text = tokenizer.encode(plain);
  tokens.insert(tokens.end(), text.begin(), text.end());
  if (tokens.empty()) {
    throw Error("the prompt is empty, and this tokenizer puts no <bos> before a text");
  }
  return tokens;
}

std::string decode_text(const Tokenizer* tokenizer, TokenSpan tokens) {
  if (tokenizer == nullptr) {
    return "";
  }
  StreamingDecoder decoder(*tokenizer);
  std::string text;
  for (const Token token : tokens) {
    text += decoder.push(token);
  }
  return text + decoder.finish();
}

}  // namespace specdec
