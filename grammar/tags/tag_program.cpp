#include "grammar/tags/tag_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/interruption.h"
#include "grammar/tags/tag_place.h"

namespace specdec {
namespace {

constexpr size_t kMaxEntries = 1'000'000;
constexpr uint64_t kMaxRepeats = 10'000;  // copies of parts that a format may need

}  // namespace

/// Builds from the end to the beginning: each part is told what follows it.
class TagProgramBuilder {
 public:
  explicit TagProgramBuilder(const TagCompiler& compiler) : compiler_(compiler) {}

  TagProgram build(const TagFormat& format) && {
    const TagEntry end = add({});
    entries_[end].end = true;
    program_.begin_ = entry_of(format, end);
    find_starts();
    find_free();
    find_distances();
    find_tokens();
    return std::move(program_);
  }

 private:
  using Kind = TagFormat::Kind;

  struct Text {
    TagSymbols symbols;
    TagEntry then;
  };
  /// As it is built; `also`: other entries of which it has everything.
  struct Entry {
    std::vector<Text> texts = {};
    std::vector<uint32_t> grammars = {}, free = {};
    std::vector<TagEntry> also = {};
    bool end = false;
    uint32_t ended = TagProgram::kNone;
  };
  struct FreePart {
    const TagFormat* format;
    TagEntry then;
  };

  TagEntry add(Entry entry) {
    if (entries_.size() >= kMaxEntries) {
      throw GrammarError(fmt::format(
          "the format has more than {} parts, copies of repeated ones among them", kMaxEntries));
    }
    entries_.push_back(std::move(entry));
    return static_cast<TagEntry>(entries_.size() - 1);
  }
  TagEntry either(TagEntry a, TagEntry b) { return add({.also = {a, b}}); }

  TagEntry entry_of(const TagFormat& format, TagEntry then);
  TagEntry text(TagSymbols symbols, TagEntry then, bool join = true);
  TagEntry delimiter(const TagFormat& format, TagEntry then, uint32_t ended);
  TagEntry grammar(const TagFormat& format, TagEntry then);
  TagEntry free(const TagFormat& format, TagEntry then);
  TagEntry any_of(const std::vector<TagFormat>& parts, TagEntry then);
  TagEntry tag(const TagFormat& format, TagEntry then);
  TagEntry triggered(const TagFormat& format, TagEntry then);
  TagEntry separated(const TagFormat& format, TagEntry then);
  TagEntry repeat(const TagFormat& format, TagEntry then);
  TagSymbols symbols(const TagFormat& format) const;
  size_t automaton(const TagContent& content);

  void find_starts();
  TagProgram::Start start_of(TagEntry entry);
  void find_free();
  void find_distances();
  void find_tokens();

  const TagCompiler& compiler_;
  TagProgram program_;
  std::vector<Entry> entries_;
  std::vector<FreePart> free_parts_;
  std::map<std::string, size_t> automata_;  ///< by content
  std::vector<uint32_t> visited_;           ///< by entry: the last walk that came there
  uint32_t walk_ = 0;
  uint64_t repeats_ = 0;
};

TagEntry TagProgramBuilder::entry_of(const TagFormat& format, TagEntry then) {
  Interruption::check();
  switch (format.kind) {
    case Kind::kText:
    case Kind::kToken:
    case Kind::kTokenOrText:
      return text(symbols(format), then, !format.ends_free_text);
    case Kind::kGrammar:
      return grammar(format, then);
    case Kind::kFree:
      return free(format, then);
    case Kind::kSequence:
      for (size_t i = format.parts.size(); i > 0; --i) {
        then = entry_of(format.parts[i - 1], then);
      }
      return then;
    case Kind::kOr:
      return any_of(format.parts, then);
    case Kind::kTag:
      return tag(format, then);
    case Kind::kTriggered:
      return triggered(format, then);
    case Kind::kSeparated:
      return separated(format, then);
    case Kind::kRepeat:
      return repeat(format, then);
  }
  throw InternalError("a format of no kind");
}

TagSymbols TagProgramBuilder::symbols(const TagFormat& format) const {
  return at_place(format.place, [&]() -> TagSymbols {
    if (format.kind == Kind::kToken) {
      return {symbol_of(compiler_.require_token(format.text))};
    }
    if (format.kind == Kind::kTokenOrText) {
      if (const auto token = compiler_.find_token(format.text)) {
        return {symbol_of(*token)};
      }
    }
    if (!is_utf8(format.text)) {
      throw GrammarError("the text must be UTF-8");
    }
    return symbols_of(format.text);
  });
}

/// A text that goes on with one text is one longer text, so that free text before it ends where the
/// longer one is whole.
TagEntry TagProgramBuilder::text(TagSymbols symbols, TagEntry then, bool join) {
  if (symbols.empty()) {
    return then;
  }
  const Entry& next = entries_[then];
  const bool is_text = next.texts.size() == 1 && next.grammars.empty() && next.free.empty() &&
                       next.also.empty() && !next.end && next.ended == TagProgram::kNone;
  if (is_text && join) {
    const Text rest = next.texts.front();
    symbols.insert(symbols.end(), rest.symbols.begin(), rest.symbols.end());
    then = rest.then;
  }
  return add({.texts = {{std::move(symbols), then}}});
}

size_t TagProgramBuilder::automaton(const TagContent& content) {
  std::string key = content.type + '\n' + content.start + '\n' + content.whitespace + '\n' +
                    content.text + '\n' + to_json(content.schema);
  for (const std::string& choice : content.choices) {
    key += to_json_string(choice);
  }
  const auto known = automata_.find(key);
  if (known != automata_.end()) {
    return known->second;
  }
  const size_t id = program_.automata_.size();
  program_.automata_.push_back(compiler_.compile(content));
  automata_.emplace(std::move(key), id);
  return id;
}

TagEntry TagProgramBuilder::grammar(const TagFormat& format, TagEntry then) {
  const size_t id = at_place(format.place, [&] { return automaton(*format.content); });
  program_.grammars_.push_back({.automaton = id, .then = then});
  return add({.grammars = {static_cast<uint32_t>(program_.grammars_.size() - 1)}});
}

TagEntry TagProgramBuilder::free(const TagFormat& format, TagEntry then) {
  free_parts_.push_back({&format, then});
  return add({.free = {static_cast<uint32_t>(free_parts_.size() - 1)}});
}

TagEntry TagProgramBuilder::any_of(const std::vector<TagFormat>& parts, TagEntry then) {
  Entry entry;
  for (const TagFormat& part : parts) {
    entry.also.push_back(entry_of(part, then));
  }
  return add(std::move(entry));
}

/// The end of a tag, which is not joined to what follows: the content ends with it.
TagEntry TagProgramBuilder::delimiter(const TagFormat& format, TagEntry then, uint32_t ended) {
  Entry entry;
  entry.ended = ended;
  const bool is_list = format.kind == Kind::kOr;
  for (size_t i = 0; i < (is_list ? format.parts.size() : 1); ++i) {
    const TagFormat& part = is_list ? format.parts[i] : format;
    const bool is_text =
        part.kind == Kind::kText || part.kind == Kind::kToken || part.kind == Kind::kTokenOrText;
    entry.also.push_back(is_text ? text(symbols(part), then, false) : entry_of(part, then));
  }
  return add(std::move(entry));
}

TagEntry TagProgramBuilder::tag(const TagFormat& format, TagEntry then) {
  const TagFormat& content = format.parts[1];
  const bool is_grammar = content.kind == Kind::kGrammar;
  // The content is the next grammar that is made.
  const auto ended = static_cast<uint32_t>(program_.grammars_.size());
  const TagFormat& end = format.parts[2];
  const bool has_end = end.kind != Kind::kText || !end.text.empty();
  const TagEntry ending =
      has_end ? delimiter(end, then, is_grammar ? ended : TagProgram::kNone) : then;
  return entry_of(format.parts[0], entry_of(content, ending));
}

TagEntry TagProgramBuilder::triggered(const TagFormat& format, TagEntry then) {
  if (format.stop_after_first) {
    const TagEntry tags = any_of(format.parts, then);
    return free(format, format.at_least_one ? tags : either(tags, then));
  }
  const TagEntry after = add({});
  const TagEntry tags = any_of(format.parts, after);
  const TagEntry more = free(format, either(tags, then));
  entries_[after].also = {more};
  return format.at_least_one ? free(format, tags) : after;
}

TagEntry TagProgramBuilder::separated(const TagFormat& format, TagEntry then) {
  const TagEntry after = format.stop_after_first ? then : add({});
  const TagEntry tags = any_of(format.parts, after);
  if (!format.stop_after_first) {
    const TagEntry more = entry_of(format.separator.front(), tags);
    entries_[after].also = {more, then};
  }
  return format.at_least_one ? tags : either(tags, then);
}

TagEntry TagProgramBuilder::repeat(const TagFormat& format, TagEntry then) {
  const TagFormat& part = format.parts.front();
  const uint64_t min = format.min;
  if (format.max.value_or(min) < min || min > kMaxRepeats ||
      (repeats_ += format.max.value_or(min)) > kMaxRepeats) {
    at_place(format.place, [&]() -> int {
      throw GrammarError(
          fmt::format("repeated from {} to {} times; give min <= max, and at most {} copies in all",
                      min, format.max.value_or(min), kMaxRepeats));
    });
  }
  TagEntry entry = then;
  if (format.max) {
    for (uint64_t i = min; i < *format.max; ++i) {
      entry = either(entry_of(part, entry), then);
    }
  } else {
    const TagEntry loop = add({});
    const TagEntry again = entry_of(part, loop);
    entries_[loop].also = {again, then};
    entry = loop;
  }
  for (uint64_t i = 0; i < min; ++i) {
    entry = entry_of(part, entry);
  }
  return entry;
}

// ---- What is found out at the end --------------------------------------------------------------

TagProgram::Start TagProgramBuilder::start_of(TagEntry first) {
  TagProgram::Start start;
  visited_.resize(entries_.size());
  std::vector<TagEntry> open = {first};
  visited_[first] = ++walk_;
  while (!open.empty()) {
    const Entry& entry = entries_[open.back()];
    open.pop_back();
    for (const Text& text : entry.texts) {
      (void)start.texts.add(text.symbols, text.then);
    }
    start.grammars.insert(start.grammars.end(), entry.grammars.begin(), entry.grammars.end());
    start.free.insert(start.free.end(), entry.free.begin(), entry.free.end());
    start.end |= entry.end;
    for (const TagEntry other : entry.also) {
      if (std::exchange(visited_[other], walk_) != walk_) {
        open.push_back(other);
      }
    }
  }
  return start;
}

/// Only of entries that something leads to: those within others are no places of their own.
void TagProgramBuilder::find_starts() {
  std::vector<bool> wanted(entries_.size(), false);
  wanted[program_.begin_] = true;
  for (const TagProgram::Grammar& grammar : program_.grammars_) {
    wanted[grammar.then] = true;
  }
  for (const FreePart& part : free_parts_) {
    wanted[part.then] = true;
  }
  for (const Entry& entry : entries_) {
    for (const Text& text : entry.texts) {
      wanted[text.then] = true;
    }
  }
  program_.starts_.resize(entries_.size());
  for (TagEntry entry = 0; entry < entries_.size(); ++entry) {
    program_.ended_.push_back(entries_[entry].ended);
    if (wanted[entry]) {
      program_.starts_[entry] = start_of(entry);
    }
  }
}

void TagProgramBuilder::find_free() {
  for (const FreePart& part : free_parts_) {
    const TagProgram::Start& then = program_.starts_[part.then];
    at_place(part.format->place, [&] {
      if (!then.grammars.empty() || !then.free.empty()) {
        throw GrammarError(
            "free text must end before a text or a token; here a grammar, a tag without a begin or "
            "more free text follows it");
      }
      program_.free_.push_back(
          {TagSearch(then.texts, part.format->triggers, part.format->excludes), then.end});
    });
  }
  for (TagProgram::Grammar& grammar : program_.grammars_) {
    const TagProgram::Start& then = program_.starts_[grammar.then];
    grammar.greedy = !then.free.empty() && then.texts.empty() && then.grammars.empty();
  }
}

void TagProgramBuilder::find_distances() {
  constexpr uint32_t kFar = TagProgram::kNone - 1;
  std::vector<uint32_t>& distances = program_.distances_;
  distances.assign(entries_.size(), kFar);
  bool changed = true;
  const auto lower = [&](TagEntry entry, uint32_t distance) {
    changed |= distance < distances[entry];
    distances[entry] = std::min(distances[entry], distance);
  };
  const auto after = [&](TagEntry then) { return std::min(distances[then], kFar - 1) + 1; };
  while (std::exchange(changed, false)) {
    for (size_t i = entries_.size(); i > 0; --i) {  // what follows was mostly made first
      const auto id = static_cast<TagEntry>(i - 1);
      const Entry& entry = entries_[id];
      lower(id, entry.end ? 0 : kFar);
      for (const Text& text : entry.texts) {
        lower(id, after(text.then));
      }
      for (const uint32_t grammar : entry.grammars) {
        lower(id, after(program_.grammars_[grammar].then));
      }
      for (const uint32_t free : entry.free) {
        lower(id, after(free_parts_[free].then));
      }
      for (const TagEntry other : entry.also) {
        lower(id, distances[other]);
      }
    }
  }
}

void TagProgramBuilder::find_tokens() {
  std::vector<Token>& tokens = program_.named_tokens_;
  for (const Entry& entry : entries_) {
    for (const Text& text : entry.texts) {
      for (const uint32_t symbol : text.symbols) {
        if (is_token(symbol)) {
          tokens.push_back(token_of(symbol));
        }
      }
    }
  }
  for (const auto& automaton : program_.automata_) {
    const std::vector<Token> inner = automaton->named_tokens();
    tokens.insert(tokens.end(), inner.begin(), inner.end());
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

TagProgram make_tag_program(const TagFormat& format, const TagCompiler& compiler) {
  return TagProgramBuilder(compiler).build(format);
}

}  // namespace specdec
