#include "grammar/tags/tag_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/interruption.h"
#include "grammar/tags/tag_place.h"
#include "grammar/tags/tag_program_builder.h"

namespace specdec {
namespace {

constexpr size_t kMaxEntries = 1'000'000;
constexpr uint64_t kMaxRepeats = 10'000;    // copies of parts that a format may need
constexpr uint64_t kMaxEmptyRepeats = 200;  // of those that may be empty: all are open at once

}  // namespace

TagProgram TagProgramBuilder::build(const TagFormat& format) && {
  const TagEntry end = add({});
  entries_[end].end = true;
  program_.begin_ = entry_of(format, end);
  find_starts();
  check_end_tokens();
  find_free();
  find_distances();
  find_tokens();
  return std::move(program_);
}

TagEntry TagProgramBuilder::add(Entry entry) {
  if (entries_.size() >= kMaxEntries) {
    throw GrammarError(fmt::format(
        "the format has more than {} parts, copies of repeated ones among them", kMaxEntries));
  }
  entries_.push_back(std::move(entry));
  return static_cast<TagEntry>(entries_.size() - 1);
}

TagEntry TagProgramBuilder::entry_of(const TagFormat& format, TagEntry then) {
  Interruption::check();
  switch (format.kind) {
    case Kind::kText:
    case Kind::kToken:
    case Kind::kTokenOrText:
      return spelled(format, then, !format.ends_free_text);
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
    case Kind::kMembers:
      return members(format, then);
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

TagEntry TagProgramBuilder::spelled(const TagFormat& format, TagEntry then, bool join) {
  TagSymbols spelling = symbols(format);
  const bool is_end = !spelling.empty() && is_token(spelling.front()) && compiler_.is_end &&
                      compiler_.is_end(token_of(spelling.front()));
  const TagEntry entry = text(std::move(spelling), then, join);
  if (is_end) {
    end_tokens_.push_back({&format, entry});
  }
  return entry;
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
  const auto grammar = static_cast<uint32_t>(program_.grammars_.size());
  program_.grammars_.push_back({.automaton = id, .then = then, .family = grammar});
  return add({.grammars = {grammar}});
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
    entry.also.push_back(is_text ? spelled(part, then, false) : entry_of(part, then));
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

/// Each part is made once: `some` is what may come after a part, `none` where none came yet.
TagEntry TagProgramBuilder::members(const TagFormat& format, TagEntry then) {
  TagEntry some = then, none = then;
  for (size_t i = format.parts.size(); i > 0; --i) {
    const TagEntry part = entry_of(format.parts[i - 1], some);
    const TagEntry separated = entry_of(format.separator.front(), part);
    some = format.required[i - 1] ? separated : either(separated, some);
    none = format.required[i - 1] ? part : either(part, none);
  }
  return none;
}

/// True where it has the empty text.
bool TagProgramBuilder::may_be_empty(const TagFormat& format) {
  const auto is_empty = [&](const TagFormat& part) { return may_be_empty(part); };
  switch (format.kind) {
    case Kind::kText:
      return format.text.empty();
    case Kind::kToken:
    case Kind::kTokenOrText:
      return false;
    case Kind::kGrammar: {
      const size_t id = at_place(format.place, [&] { return automaton(*format.content); });
      Automaton& grammar = *program_.automata_[id];
      return grammar.is_complete(grammar.start());
    }
    case Kind::kFree:
      return true;
    case Kind::kSequence:
    case Kind::kTag:
      return std::ranges::all_of(format.parts, is_empty);
    case Kind::kOr:
      return std::ranges::any_of(format.parts, is_empty);
    case Kind::kTriggered:
    case Kind::kSeparated:
      return !format.at_least_one || std::ranges::any_of(format.parts, is_empty);
    case Kind::kMembers:
      return std::ranges::none_of(format.required, std::identity());
    case Kind::kRepeat:
      return format.min == 0 || is_empty(format.parts.front());
  }
  throw InternalError("a format of no kind");
}

/// Counts the copies of a part after the first.
void TagProgramBuilder::check_repeat(const TagFormat& format, bool is_empty) {
  const uint64_t count = std::max<uint64_t>(format.max.value_or(format.min), 1);
  const bool is_grammar = format.parts.front().kind == Kind::kGrammar;
  at_place(format.place, [&] {
    if (format.max.value_or(format.min) < format.min) {
      throw GrammarError(
          fmt::format("repeated from {} to {} times; give min <= max", format.min, *format.max));
    }
    if (count > kMaxRepeats || (repeats_ += count - 1) > kMaxRepeats) {
      throw GrammarError(
          fmt::format("repeated up to {} times; the format may have at most {} copies in all",
                      count, kMaxRepeats));
    }
    if (is_empty && !is_grammar && format.max && (empty_repeats_ += count - 1) > kMaxEmptyRepeats) {
      throw GrammarError(fmt::format(
          "repeated up to {} times what may be empty; the format may have at most {} such copies "
          "in all; leave out max, or repeat what is never empty",
          count, kMaxEmptyRepeats));
    }
  });
}

TagEntry TagProgramBuilder::repeat(const TagFormat& format, TagEntry then) {
  const bool is_empty = format.separator.empty() && may_be_empty(format.parts.front());
  check_repeat(format, is_empty);
  if (format.max == 0) {
    return then;
  }
  const auto first = static_cast<uint32_t>(program_.grammars_.size());
  const TagEntry entry = copies(format, is_empty ? 0 : format.min, then);
  if (is_empty && format.parts.front().kind == Kind::kGrammar) {
    for (uint32_t id = first; id < program_.grammars_.size(); ++id) {
      program_.grammars_[id].family = first;
    }
  }
  return entry;
}

TagEntry TagProgramBuilder::copies(const TagFormat& format, uint64_t min, TagEntry then) {
  const TagFormat& part = format.parts.front();
  const auto again = [&](TagEntry next) {
    return format.separator.empty() ? next : entry_of(format.separator.front(), next);
  };
  TagEntry after = then;  // what may come after a copy
  TagEntry next = then;   // the next copy
  uint64_t left = std::max<uint64_t>(format.max.value_or(min), 1);
  if (!format.max) {
    const TagEntry loop = add({});
    next = entry_of(part, loop);
    after = again(next);
    entries_[loop].also = {after, then};
    left = std::max<uint64_t>(min, 1) - 1;
  }
  for (; left > 0; --left) {  // of `left` copies the last one that is not made yet
    next = entry_of(part, after);
    after = again(next);
    if (left - 1 >= min) {
      after = either(after, then);
    }
  }
  return min > 0 ? next : either(next, then);
}

TagProgram make_tag_program(const TagFormat& format, const TagCompiler& compiler) {
  return TagProgramBuilder(compiler).build(format);
}

}  // namespace specdec
