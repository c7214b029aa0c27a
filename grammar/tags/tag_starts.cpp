// What is found out of a program once all its entries are made.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/tags/tag_place.h"
#include "grammar/tags/tag_program_builder.h"

namespace specdec {
namespace {

constexpr size_t kMaxStartTexts = 2'000'000;  // that may come next, of all entries together

/// Free text that is no list of tags has triggers for the case that its end is spelled like that.
std::vector<std::string> triggers_of(const TagFormat& format, const TagTexts& texts) {
  std::vector<std::string> triggers = format.triggers;
  if (format.kind == TagFormat::Kind::kFree) {
    std::erase_if(triggers, [&](const std::string& trigger) {
      TagTexts::Node node = GrowingTrie::kRoot;
      for (const uint32_t symbol : symbols_of(trigger)) {
        node = node == GrowingTrie::kNone ? node : texts.child(node, symbol);
      }
      return node == GrowingTrie::kNone;
    });
  }
  return triggers;
}

}  // namespace

TagProgram::Start TagProgramBuilder::start_of(TagEntry first) {
  TagProgram::Start start;
  visited_.resize(entries_.size());
  Interruption::check();
  std::vector<TagEntry> open = {first};
  visited_[first] = ++walk_;
  while (!open.empty()) {
    const Entry& entry = entries_[open.back()];
    open.pop_back();
    for (const Text& text : entry.texts) {
      (void)start.texts.add(text.symbols, text.then);
      if (++start_texts_ > kMaxStartTexts) {
        throw GrammarError(
            fmt::format("the format has more than {} texts that may come next to one another; give "
                        "fewer tools or optional parts",
                        kMaxStartTexts));
      }
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

/// Finds the starts of entries that something leads to: those within others are no places of their
/// own.
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
          {TagSearch(then.texts, triggers_of(*part.format, then.texts), part.format->excludes),
           then.end});
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

/// Whoever generates stops after an end token, so that nothing may follow it.
void TagProgramBuilder::check_end_tokens() const {
  for (const EndToken& token : end_tokens_) {
    const Text& text = entries_[token.entry].texts.front();
    const TagProgram::Start& then = program_.starts_[text.then];
    const bool is_last = text.symbols.size() == 1 && then.end && then.texts.empty() &&
                         then.grammars.empty() && then.free.empty();
    if (!is_last) {
      at_place(token.format->place, [&] {
        throw GrammarError(
            fmt::format("the token '{}' ends what is generated, but more text may follow it here; "
                        "let nothing follow (stop_after_first), or give other end tokens",
                        token.format->text));
      });
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

}  // namespace specdec
