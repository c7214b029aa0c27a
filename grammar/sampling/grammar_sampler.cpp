#include "grammar/sampling/grammar_sampler.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/grammar_matcher.h"
#include "grammar/interruption.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

constexpr std::string_view kSpace = " \n\r\t";
constexpr int kTries = 5;
constexpr int kCandidates = 4;        ///< tokens drawn for each that is taken, for legible texts
constexpr size_t kBytesPerToken = 8;  ///< that a completion may need at most
constexpr double kUseName = 0.75;
constexpr double kUseTag = 0.5;
constexpr double kCloseString = 0.3;
constexpr double kCloseOther = 0.2;

/// What a JSON text that is not finished stands in.
class JsonPlace {
 public:
  bool in_string() const { return in_string_; }
  /// Where an object's name may begin, or has just begun with its quote.
  bool at_name() const { return name_next_ || (in_string_ && in_name_ && string_bytes_ == 0); }

  void take(std::string_view bytes) {
    for (const char c : bytes) {
      in_string_ ? take_in_string(c) : take_outside(c);
    }
  }

 private:
  void take_in_string(char c) {
    ++string_bytes_;
    in_string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
  }

  void take_outside(char c) {
    if (kSpace.find(c) != std::string_view::npos) {
      return;
    }
    in_name_ = c == '"' && name_next_;
    in_string_ = c == '"';
    string_bytes_ = 0;
    if (c == '{' || c == '[') {
      open_ += c;
    } else if ((c == '}' || c == ']') && !open_.empty()) {
      open_.pop_back();
    }
    name_next_ = c == '{' || (c == ',' && open_.ends_with('{'));
  }

  std::string open_;
  bool in_string_ = false, escaped_ = false, in_name_ = false, name_next_ = false;
  size_t string_bytes_ = 0;
};

/// One try: a text as it grows.
class Walk {
 public:
  Walk(const std::shared_ptr<const CompiledGrammar>& grammar, const GrammarSampleOptions& options,
       Randomness& random, const Interruption& time)
      : matcher_(grammar),
        names_(options.names),
        tags_(options.tags),
        random_(random),
        time_(time) {}

  std::vector<Token>&& take_tokens() && { return std::move(tokens_); }

  /// False when the text has not more than `max_tokens` but no end either.
  bool run(int64_t free_tokens, int64_t max_tokens) {
    bool ended = false;
    while (!ended && length() < free_tokens) {
      time_.look();
      ended = !step();
    }
    return (ended || finish(max_tokens)) && length() <= max_tokens;
  }

 private:
  /// A cut of some bytes into tokens.
  struct Cut {
    StateId state = Automaton::kDead;
    size_t count = 0;
    size_t begin = 0;  ///< of the last token
    Token token = 0;
  };

  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  size_t uniform(size_t count);
  /// False at the end of the text.
  bool step();
  bool take(Token token);
  std::vector<Cut> cuts_of(std::string_view bytes, size_t max_begin) const;
  bool spell(std::string_view bytes);
  std::optional<std::string> whole_completion(size_t max_bytes) const;
  bool finish(int64_t max_tokens);
  std::string next_part() const;
  std::string any_name();
  bool take_tag();
  bool take_named_token();
  Token any_token();

  GrammarMatcher matcher_;
  const std::vector<std::string>& names_;
  const std::vector<std::string>& tags_;
  Randomness& random_;
  const Interruption& time_;
  JsonPlace place_;
  std::vector<Token> tokens_;
};

/// Uniform choice in blocks, so that one among all tokens needs few weights.
size_t Walk::uniform(size_t count) {
  constexpr size_t kBlock = 512;
  std::vector<double> weights;
  for (size_t i = 0; i < count; i += kBlock) {
    weights.push_back(static_cast<double>(std::min(kBlock, count - i)));
  }
  const size_t begin = static_cast<size_t>(random_.draw(weights)) * kBlock;
  weights.assign(std::min(kBlock, count - begin), 1.0);
  return begin + static_cast<size_t>(random_.draw(weights));
}

bool Walk::take(Token token) {
  if (!matcher_.accept(token)) {
    if (const auto limit = matcher_.limit()) {
      throw GrammarError(*limit);
    }
    return false;
  }
  tokens_.push_back(token);
  place_.take(matcher_.grammar().vocabulary().bytes(token));
  return true;
}

/// Cuts by the number of bytes: the fewest tokens that spell so many of them, of which the last one
/// begins before `max_begin`.
std::vector<Walk::Cut> Walk::cuts_of(std::string_view bytes, size_t max_begin) const {
  const CompiledGrammar& grammar = matcher_.grammar();
  const TokenTrie& trie = grammar.vocabulary().trie();
  std::vector<Cut> cuts(bytes.size() + 1);
  cuts.front().state = matcher_.state();
  for (size_t begin = 0; begin < max_begin; ++begin) {
    const Cut before = cuts[begin];
    TokenTrie::Node node = 0;
    for (size_t end = begin + 1; before.state != Automaton::kDead && end <= bytes.size(); ++end) {
      node = trie.child(node, static_cast<uint8_t>(bytes[end - 1]));
      if (node == TokenTrie::kNone) {
        break;
      }
      for (const Token token : trie.tokens(node)) {  // byte pieces come before what they double
        const Cut& known = cuts[end];
        if (known.state != Automaton::kDead && known.begin != begin &&
            known.count <= before.count + 1) {
          break;
        }
        const StateId state = grammar.next(before.state, token);
        if (state != Automaton::kDead) {
          cuts[end] = {state, before.count + 1, begin, token};
        }
      }
    }
  }
  return cuts;
}

/// Takes tokens that spell bytes of the grammar; in a canonical one the last token may have to take
/// along something of a way on. False when no such tokens may come.
bool Walk::spell(std::string_view bytes) {
  const CompiledGrammar& grammar = matcher_.grammar();
  const StateId after = grammar.next(matcher_.state(), bytes);
  const std::string forced = grammar.forced_bytes(after);
  const std::string more = forced.empty() ? grammar.completion(after).value_or("") : forced;
  const std::vector<Cut> cuts = cuts_of(std::string(bytes) + more, bytes.size());
  size_t end = bytes.size();
  while (end < cuts.size() && cuts[end].state == Automaton::kDead) {
    ++end;
  }
  if (end == cuts.size()) {
    return false;
  }
  std::vector<Token> tokens;
  for (; end > 0; end = cuts[end].begin) {
    tokens.push_back(cuts[end].token);
  }
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    SPECDEC_CHECK(take(*token), "the grammar allows '{}' but not its token {}", bytes, *token);
  }
  return true;
}

/// The whole completion that the grammar knows, or up to a named token; nothing when there is none
/// or it is too long.
std::optional<std::string> Walk::whole_completion(size_t max_bytes) const {
  const CompiledGrammar& grammar = matcher_.grammar();
  StateId state = matcher_.state();
  std::string way;
  while (!grammar.is_complete(state) && !grammar.completion_token(state)) {
    const auto part = grammar.completion(state);
    if (!part || part->empty() || way.size() + part->size() > max_bytes) {
      return std::nullopt;
    }
    state = grammar.next(state, *part);
    way += *part;
  }
  return way;
}

/// Takes a completion. Where it cannot be spelt, as the cut of a canonical grammar's text may have
/// to go on otherwise, any token and the way from there.
bool Walk::finish(int64_t max_tokens) {
  while (length() <= max_tokens) {
    time_.look();
    const auto way = whole_completion(static_cast<size_t>(max_tokens - length()) * kBytesPerToken);
    if (!way) {
      return false;
    }
    const auto named = way->empty() ? matcher_.grammar().completion_token(matcher_.state())
                                    : std::optional<Token>();
    if (!named && spell(*way)) {
      if (matcher_.is_complete()) {
        return true;
      }
      continue;
    }
    const Token token = named ? *named : any_token();
    SPECDEC_CHECK(take(token), "the mask allows token {}, but the grammar does not", token);
  }
  return false;
}

/// The next bytes of a completion, of a string its whole rest; empty when none is known.
std::string Walk::next_part() const {
  std::string forced = matcher_.grammar().forced_bytes(matcher_.state());
  if (!forced.empty()) {
    return forced;
  }
  const std::string way = matcher_.grammar().completion(matcher_.state()).value_or("");
  const size_t quote = place_.in_string() ? way.find('"') : way.npos;
  return quote != way.npos ? way.substr(0, quote + 1) : way.substr(0, scan_utf8(way).bytes);
}

std::string Walk::any_name() {
  std::vector<std::string> possible;
  for (const std::string& name : names_) {
    const std::string text = to_json_string(name).substr(place_.in_string() ? 1 : 0);
    if (matcher_.grammar().next(matcher_.state(), text) != Automaton::kDead) {
      possible.push_back(text);
    }
  }
  return possible.empty() ? "" : possible[uniform(possible.size())];
}

/// False where no tag may come.
bool Walk::take_tag() {
  const std::string& tag = tags_[uniform(tags_.size())];
  if (matcher_.grammar().next(matcher_.state(), tag) == Automaton::kDead || !spell(tag)) {
    return false;
  }
  place_ = JsonPlace();
  return true;
}

/// False where no named token may come.
bool Walk::take_named_token() {
  const TokenMask mask = matcher_.mask();
  std::vector<Token> tokens = matcher_.grammar().named_tokens();
  std::erase_if(tokens, [&](Token token) { return !mask.allows(token); });
  if (tokens.empty()) {
    return false;
  }
  const Token token = tokens[uniform(tokens.size())];
  place_ = JsonPlace();
  return !matcher_.grammar().is_end(token) && take(token);
}

/// Throws GrammarError when a limit of the grammar was reached.
Token Walk::any_token() {
  if (!matcher_.settle()) {
    const auto limit = matcher_.grammar().limit(matcher_.state());
    throw GrammarError(limit.value_or("a limit of the grammar was reached"));
  }
  const std::vector<Token> allowed = matcher_.mask().tokens();
  SPECDEC_CHECK(!allowed.empty(), "a state of the grammar has no token");
  Token token = 0;
  for (int i = 0; i < kCandidates; ++i) {
    token = allowed[uniform(allowed.size())];
    const std::string_view bytes = matcher_.grammar().vocabulary().bytes(token);
    if (!bytes.empty() &&
        std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; })) {
      break;
    }
  }
  return token;
}

bool Walk::step() {
  if (!matcher_.grammar().named_tokens().empty() && random_.bernoulli(kUseTag) &&
      take_named_token()) {
    return true;
  }
  if (matcher_.is_complete() && !tags_.empty() && random_.bernoulli(kUseTag) && take_tag()) {
    return true;
  }
  if (matcher_.is_complete() && (matcher_.can_only_end() || random_.bernoulli(0.5))) {
    return false;
  }
  if (place_.at_name() && random_.bernoulli(kUseName)) {
    if (const std::string name = any_name(); !name.empty() && spell(name)) {
      return true;
    }
  }
  if (!matcher_.is_complete() &&
      random_.bernoulli(place_.in_string() ? kCloseString : kCloseOther)) {
    const std::string part = next_part();
    if (!part.empty() && spell(part)) {
      return true;
    }
  }
  const Token token = any_token();
  if (matcher_.grammar().is_end(token)) {
    return false;
  }
  SPECDEC_CHECK(take(token), "the mask allows token {}, but the grammar does not", token);
  return true;
}

}  // namespace

std::optional<std::vector<Token>> sample_grammar(
    const std::shared_ptr<const CompiledGrammar>& grammar, const GrammarSampleOptions& options,
    Randomness& random) {
  SPECDEC_CHECK(grammar->start() != Automaton::kDead, "a grammar without texts cannot be sampled");
  try {
    const Interruption time(static_cast<double>(options.max_seconds), nullptr);
    int64_t free_tokens = options.max_tokens / 2;
    for (int i = 0; i < kTries; ++i) {
      Walk walk(grammar, options, random, time);
      if (walk.run(free_tokens, options.max_tokens)) {
        return std::move(walk).take_tokens();
      }
      free_tokens = i + 2 < kTries ? free_tokens / 2 : 0;
    }
    return std::nullopt;
  } catch (const GrammarInterrupted&) {
    throw GrammarError(
        fmt::format("a random text of the grammar takes more than {} s; raise max_seconds, or "
                    "allow fewer tokens",
                    options.max_seconds));
  }
}

}  // namespace specdec
