#include "experiments/grammar/grammar_config.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/grammar/grammar_cases.h"
#include "experiments/grammar/yaml_values.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

/// Whether objects have their keys in the schema's order.
constexpr NamedValue<bool> kKeepsOrder[] = {{"schema", true}, {"any", false}};
constexpr NamedValue<bool> kAssertsFormats[] = {{"assert", true}, {"annotate", false}};
constexpr NamedValue<EscapeStyle> kEscapeStyles[] = {{"minimal", EscapeStyle::kMinimal},
                                                     {"any", EscapeStyle::kAny}};

/// Reads a grammar; nothing when it cannot be compiled, which has been noted.
class GrammarReader {
 public:
  GrammarReader(ConfigNode node, GrammarUse use) : node_(std::move(node)), use_(use) {
    if (use == GrammarUse::kRecorded) {
      config_.source.schema.escapes = EscapeStyle::kAny;
      config_.source.schema.usual_max_whitespace = kRecordedWhitespace;
    }
  }

  std::optional<GrammarConfig> read(bool is_part) {
    const auto type = node_.require_type(grammar_kind_names());
    const auto kind = parse_grammar_kind(type);
    if (!kind) {
      return std::nullopt;
    }
    config_.source.kind = *kind;
    config_.source.name = type;
    read_kind(is_part);
    read_whole(is_part);
    node_.refuse_unknown_keys();
    if (complete_ && use_ == GrammarUse::kGenerate && !config_.per_prompt) {
      check();
    }
    return complete_ ? std::optional(config_) : std::nullopt;
  }

 private:
  void read_kind(bool is_part) {
    switch (config_.source.kind) {
      case GrammarKind::kJsonSchema:
        return read_schema(is_part);
      case GrammarKind::kRegex:
        return read_text("pattern");
      case GrammarKind::kGbnf:
      case GrammarKind::kLark:
        return read_rules();
      case GrammarKind::kChoice:
        return read_choices();
      case GrammarKind::kTrigger:
        return read_triggers();
      case GrammarKind::kTags:
        return read_structure();
      case GrammarKind::kToolCalls:
        return read_tool_calls();
    }
  }

  /// Mistakes belong to the key that holds the grammar, and need no other name when it is no file.
  void check() {
    try {
      config_.token_names = check_grammar(config_.source);
    } catch (const GrammarError& error) {
      const std::string message = error.what();
      const std::string name = config_.source.name + ": ";
      const bool is_named = place_key_ != "file" && message.starts_with(name);
      node_.fail(place_key_, is_named ? message.substr(name.size()) : message);
      complete_ = false;
    }
  }

  void note_error(const std::string& key, const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      node_.fail(key, error.what());
      complete_ = false;
    }
  }

  /// Exactly one of two keys, or a grammar that needs neither.
  bool has_one(const std::string& key, bool other = false, const std::string& other_name = "") {
    node_.ignore(key);
    node_.ignore("file");
    const int given = int{node_.has(key)} + int{node_.has("file")} + int{other};
    if (given != 1) {
      const std::string keys = fmt::format("'{}', 'file'{}", key, other_name);
      node_.fail(given == 0 ? fmt::format("has none of the keys {}; give one", keys)
                            : fmt::format("has more than one of the keys {}; keep one", keys));
      complete_ = false;
    }
    return given == 1;
  }

  void read_text(const std::string& key) {
    if (!has_one(key)) {
      return;
    }
    if (node_.has("file")) {
      read_file();
    } else {
      read_inline(key);
    }
  }

  void read_file() {
    place_key_ = "file";
    const auto file = node_.require_path("file");
    complete_ = complete_ && !file.empty();
    if (!file.empty()) {
      note_error("file", [&] {
        GrammarSource read = read_grammar_file(file, config_.source.kind);
        config_.source.text = std::move(read.text);
        config_.source.name = std::move(read.name);
      });
    }
  }

  void read_inline(const std::string& key) {
    place_key_ = key;
    config_.source.name = key;
    const auto text = node_.find<std::string>(key);
    complete_ = complete_ && text;
    config_.source.text = text.value_or("");
  }

  /// What grammars of all kinds have, but none that is part of another.
  void read_whole(bool is_part) {
    GrammarSource& source = config_.source;
    source.cuts = node_.get<bool>("canonical", false) ? Cuts::kCanonical : Cuts::kAny;
    GrammarLimits& limits = source.limits;
    limits.max_regex_states =
        node_.get<uint64_t>("max_regex_states", limits.max_regex_states, {1, kMaxGrammarLimit});
    limits.max_mask_bytes =
        node_.get<uint64_t>("max_mask_bytes", limits.max_mask_bytes, {1, kMaxGrammarLimit});
    for (const char* key : {"canonical", "max_regex_states", "max_mask_bytes"}) {
      if (is_part && node_.has(key)) {
        node_.fail(key, "belongs to the whole grammar, beside 'triggers'");
        complete_ = false;
      }
    }
  }

  void read_schema(bool is_part);
  void read_schema_options();
  void read_whitespace();
  void read_structure();
  void read_tool_calls();
  void read_tools(JsonValue& request);
  void read_rules();
  void read_choices();
  void read_triggers();

  ConfigNode node_;
  GrammarUse use_;
  GrammarConfig config_;
  bool complete_ = true;
  std::string place_key_;
};

// ---- JSON Schemas ------------------------------------------------------------------------------

void GrammarReader::read_schema(bool is_part) {
  config_.per_prompt = node_.get<bool>("per_prompt", false);
  if (config_.per_prompt && is_part) {
    node_.fail("per_prompt", "only a whole grammar can come with the prompts, not a trigger's");
    complete_ = false;
  }
  read_schema_options();
  read_whitespace();
  if (!has_one("schema", config_.per_prompt, ", 'per_prompt: true'") || config_.per_prompt) {
    return;
  }
  if (node_.has("file")) {
    read_file();
  } else if (node_.is_map("schema")) {
    place_key_ = config_.source.name = "schema";
    config_.source.text = to_json(json_of(*node_.raw("schema")));
  } else {
    read_inline("schema");
  }
}

void GrammarReader::read_whitespace() {
  JsonSchemaOptions& options = config_.source.schema;
  const auto whitespace = node_.get<std::string>("whitespace", options.whitespace);
  note_error("whitespace", [&] {
    check_whitespace(whitespace);
    options.whitespace = whitespace;
  });
  if (config_.source.kind == GrammarKind::kJsonSchema) {
    note_error("max_whitespace", [&] { check_whitespace(options); });
  }
}

void GrammarReader::read_schema_options() {
  JsonSchemaOptions& options = config_.source.schema;
  options.schema_order = node_.choose("order", kKeepsOrder, true);
  options.assert_formats = node_.choose("format", kAssertsFormats, true);
  options.escapes =
      node_.choose("escapes", kEscapeStyles,
                   use_ == GrammarUse::kRecorded ? EscapeStyle::kAny : EscapeStyle::kMinimal);
  options.max_whitespace = static_cast<uint32_t>(
      node_.get<uint64_t>("max_whitespace", options.max_whitespace, {1, kMaxWhitespace}));
  node_.ignore("registry");
  if (node_.has("registry")) {
    const auto file = node_.require_path("registry");
    complete_ = complete_ && !file.empty();
    note_error("registry", [&] {
      options.registry = file.empty() ? options.registry : read_schema_registry(file);
    });
  }
  GrammarLimits& limits = config_.source.limits;
  limits.max_alternatives =
      node_.get<uint64_t>("max_alternatives", limits.max_alternatives, {1, kMaxGrammarLimit});
  limits.max_steps = node_.get<uint64_t>("max_steps", limits.max_steps, {1, kMaxGrammarLimit});
  limits.max_seconds =
      node_.get<uint64_t>("max_seconds", limits.max_seconds, {1, kMaxGrammarLimit});
  limits.max_states = node_.get<uint64_t>("max_states", limits.max_states, {1, kMaxGrammarLimit});
}

// ---- Structured texts --------------------------------------------------------------------------

void GrammarReader::read_structure() {
  read_schema_options();
  read_whitespace();
  if (!has_one("structure")) {
    return;
  }
  if (node_.has("file")) {
    read_file();
    return;
  }
  place_key_ = config_.source.name = "structure";
  config_.source.text = to_json(json_of(*node_.raw("structure")));
}

/// The keys are those of a request to OpenAI's API; `tools` may be a file.
void GrammarReader::read_tool_calls() {
  read_schema_options();
  place_key_ = config_.source.name = "tools";
  JsonValue request = {.type = JsonValue::Type::kObject, .text = "", .items = {}, .members = {}};
  for (const char* key : {"style", "tool_choice", "parallel_tool_calls", "whitespace"}) {
    node_.ignore(key);
    if (node_.has(key)) {
      request.members.push_back({key, json_of(*node_.raw(key))});
    }
  }
  node_.ignore("tools");
  if (!node_.has("style") || !node_.has("tools")) {
    const char* missing = node_.has("style") ? "tools" : "style";
    node_.fail(fmt::format("the key '{}' is missing; see docs/grammar.md", missing));
    complete_ = false;
    return;
  }
  read_tools(request);
  config_.source.text = to_json(request);
}

void GrammarReader::read_tools(JsonValue& request) {
  if (node_.is_list("tools")) {
    request.members.push_back({"tools", json_of(*node_.raw("tools"))});
    config_.tools = to_json(request.members.back().value);
    return;
  }
  const auto file = node_.require_path("tools");
  complete_ = complete_ && !file.empty();
  if (!file.empty()) {
    note_error("tools", [&] {
      request.members.push_back({"tools", parse_json(read_text_file(file), file.string())});
      config_.tools = to_json(request.members.back().value);
    });
  }
}

// ---- Other kinds -------------------------------------------------------------------------------

void GrammarReader::read_rules() {
  GrammarSource& source = config_.source;
  source.start =
      node_.get<std::string>("start", source.kind == GrammarKind::kGbnf ? "root" : "start");
  GrammarLimits& limits = source.limits;
  limits.max_unrolled =
      node_.get<uint64_t>("max_unrolled", limits.max_unrolled, {1, kMaxGrammarLimit});
  limits.max_symbols =
      node_.get<uint64_t>("max_symbols", limits.max_symbols, {1, kMaxGrammarLimit});
  limits.max_state_items =
      node_.get<uint64_t>("max_state_items", limits.max_state_items, {1, kMaxGrammarLimit});
  read_text("text");
  if (may_have_schemas(source)) {
    read_schema_options();
    read_whitespace();
  }
}

void GrammarReader::read_choices() {
  place_key_ = "choices";
  if (!node_.has("choices")) {
    node_.fail("the key 'choices' is missing; give a list of texts");
    node_.ignore("choices");
    complete_ = false;
    return;
  }
  config_.source.choices = node_.get_list<std::string>("choices", {});
  complete_ = node_.is_list("choices");
}

void GrammarReader::read_triggers() {
  place_key_ = "triggers";
  const auto nodes = node_.children("triggers");
  complete_ = node_.is_list("triggers");
  for (const ConfigNode& node : nodes) {
    GrammarSource::Trigger trigger;
    trigger.begin = node.require<std::string>("begin");
    complete_ = complete_ && node.has("begin");
    trigger.end = node.get<std::string>("end", "");
    if (auto inner = GrammarReader(node.child("grammar"), use_).read(true)) {
      config_.tools = config_.tools.empty() ? std::move(inner->tools) : config_.tools;
      trigger.grammar = std::move(inner->source);
      config_.source.triggers.push_back(std::move(trigger));
    } else {
      complete_ = false;
    }
    node.refuse_unknown_keys();
  }
}

}  // namespace

GrammarConfig read_grammar(const ConfigNode& node, GrammarUse use) {
  return GrammarReader(node, use).read(false).value_or(GrammarConfig());
}

bool may_have_schemas(const GrammarSource& source) {
  return source.kind == GrammarKind::kLark && source.text.find("%json") != std::string::npos;
}

std::optional<GrammarKind> grammar_kind_of_file(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  if (ending == ".json") {
    return GrammarKind::kJsonSchema;
  }
  const auto kind = parse_grammar_kind(ending.empty() ? "" : ending.substr(1));
  const bool is_file =
      kind == GrammarKind::kRegex || kind == GrammarKind::kGbnf || kind == GrammarKind::kLark;
  return is_file ? kind : std::nullopt;
}

GrammarSource read_grammar_file(const std::filesystem::path& file, GrammarKind kind) {
  GrammarSource source;
  source.kind = kind;
  source.name = file.string();
  source.text = read_text_file(file);
  for (const char end : {'\n', '\r'}) {
    if (kind == GrammarKind::kRegex && source.text.ends_with(end)) {
      source.text.pop_back();
    }
  }
  return source;
}

}  // namespace specdec
