#include "grammar/grammar_sampler.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/grammar_matcher.h"
#include "grammar/json_value.h"

namespace specdec {
namespace {

constexpr std::string_view kSpace = " \n\r\t";
constexpr std::string_view kNumberBytes = "0123456789.-+eE";
/// How a value or what stands between values goes on, the shortest first.
constexpr std::string_view kShortestFirst = "ntf0123456789-\"[{:, \n\r\t";
constexpr size_t kMaxStates = 20'000;  ///< that a search looks at
constexpr int kMaxInvented = 64;       ///< names on a way out that nobody gave
constexpr int kTries = 5;
constexpr int kCandidates = 4;        ///< tokens drawn for each that is taken, for legible texts
constexpr size_t kBytesPerToken = 8;  ///< that a way out may need at most
constexpr double kUseName = 0.75;
constexpr double kUseTag = 0.5;
constexpr double kCloseString = 0.3;
constexpr double kCloseOther = 0.2;

/// What a JSON text that is not finished stands in.
class JsonPlace {
 public:
  bool in_string() const { return in_string_; }
  bool escaped() const { return escaped_; }
  bool in_number() const { return in_number_; }
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
    in_number_ = (c >= '0' && c <= '9') || c == '-' ||
                 (in_number_ && kNumberBytes.find(c) != std::string_view::npos);
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
  bool in_number_ = false;
  size_t string_bytes_ = 0;
};

/// A way to the end of a text that is not finished: the automaton's own, or of JSON each part (a
/// string's rest, a number's rest) is the shortest one, found breadth first; of values the simplest
/// kind is taken, of objects what is required.
class WayOut {
 public:
  explicit WayOut(const CompiledGrammar& grammar) : grammar_(grammar) {}

  /// Nothing when `max_bytes` do not suffice, when a string is too hard to end, or when object
  /// names come and come but none lets its object end.
  std::optional<std::string> find(StateId state, JsonPlace place,
                                  const std::vector<std::string>& names, size_t max_bytes) {
    std::string way;
    int invented = 0;
    while (!grammar_.is_complete(state)) {
      const auto known = grammar_.way_out(state);
      const bool names_itself = !known && place.in_string() && place.at_name();
      invented += names_itself && !first_name(state, place, names) ? 1 : 0;
      const std::string part = known ? *known : next_part(state, place, names);
      if (part.empty() || invented > kMaxInvented || way.size() + part.size() > max_bytes) {
        return std::nullopt;
      }
      state = grammar_.next(state, part);
      place.take(part);
      way += part;
    }
    return way;
  }

  /// The next bytes of a way out; empty when none was found.
  std::string next_part(StateId state, const JsonPlace& place,
                        const std::vector<std::string>& names) {
    std::string forced = grammar_.forced_bytes(state);
    if (!forced.empty()) {
      return forced;
    }
    if (const auto way = grammar_.way_out(state)) {
      return way->substr(0, scan_utf8(*way).bytes);
    }
    if (place.in_string()) {
      const auto name = place.at_name() ? first_name(state, place, names) : std::nullopt;
      return name ? *name : string_end(state, place.escaped());
    }
    if (place.in_number()) {
      const auto rest =
          search(state, kNumberBytes, false, [&](StateId at, bool) { return number_may_end(at); });
      if (!rest || !rest->empty()) {
        return rest.value_or("");
      }
    }
    if (const auto close = container_end(state)) {
      return *close;
    }
    if (const auto name = place.at_name() ? first_name(state, place, names) : std::nullopt) {
      return *name;
    }
    const auto next = std::find_if(kShortestFirst.begin(), kShortestFirst.end(),
                                   [&](char c) { return allows(state, c); });
    return next == kShortestFirst.end() ? "" : std::string(1, *next);
  }

  /// A name as it goes on at this place, with its closing quote; nothing when it may not come.
  std::optional<std::string> name_here(StateId state, const JsonPlace& place,
                                       const std::string& name) const {
    const std::string text = to_json_string(name).substr(place.in_string() ? 1 : 0);
    return grammar_.next(state, text) == Automaton::kDead ? std::nullopt : std::optional(text);
  }

 private:
  bool allows(StateId state, char c) const {
    return grammar_.next(state, std::string_view(&c, 1)) != Automaton::kDead;
  }

  bool number_may_end(StateId state) const {
    static constexpr std::string_view kAfter = ",]} \n\r\t";
    return grammar_.is_complete(state) ||
           std::any_of(kAfter.begin(), kAfter.end(), [&](char c) { return allows(state, c); });
  }

  std::optional<std::string> first_name(StateId state, const JsonPlace& place,
                                        const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (auto text = name_here(state, place, name)) {
        return text;
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> container_end(StateId state) const {
    const auto closes = [&](StateId at, bool) { return allows(at, '}') || allows(at, ']'); };
    auto way = search(state, kSpace, false, closes);
    if (!way) {
      return std::nullopt;
    }
    return *way + (allows(grammar_.next(state, *way), '}') ? "}" : "]");
  }

  std::string string_end(StateId state, bool escaped) const {
    const auto closes = [&](StateId at, bool after_backslash) {
      return !after_backslash && allows(at, '"');
    };
    std::string legible;
    std::string all;
    for (int c = 0; c < 256; ++c) {
      all += static_cast<char>(c);
      if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
        legible += static_cast<char>(c);
      }
    }
    auto way = escaped ? std::nullopt : search(state, legible, false, closes);
    if (!way) {
      way = search(state, all, escaped, closes);
    }
    return way ? *way + '"' : "";
  }

  /// The fewest bytes of `alphabet` to a state that `is_goal`, which also hears whether the byte
  /// before was a backslash that escapes the next.
  std::optional<std::string> search(StateId from, std::string_view alphabet, bool escaped,
                                    const std::function<bool(StateId, bool)>& is_goal) const {
    struct Seen {
      StateId state;
      bool escaped;
      char byte;
      size_t before;
    };
    std::vector<Seen> seen = {{from, escaped, '\0', 0}};
    std::unordered_set<StateId> known = {from};
    for (size_t at = 0; at < seen.size() && seen.size() < kMaxStates; ++at) {
      const Seen here = seen[at];
      if (is_goal(here.state, here.escaped)) {
        std::string way;
        for (size_t i = at; i != 0; i = seen[i].before) {
          way += seen[i].byte;
        }
        return std::string(way.rbegin(), way.rend());
      }
      for (const char c : alphabet) {
        const bool ends_string = c == '"' && !here.escaped;
        const StateId next =
            ends_string ? Automaton::kDead : grammar_.next(here.state, std::string_view(&c, 1));
        if (next != Automaton::kDead && known.insert(next).second) {
          seen.push_back({next, !here.escaped && c == '\\', c, at});
        }
      }
    }
    return std::nullopt;
  }

  const CompiledGrammar& grammar_;
};

/// One try: a text as it grows.
class Walk {
 public:
  Walk(const std::shared_ptr<const CompiledGrammar>& grammar, std::vector<std::string> names,
       const std::vector<std::string>& tags, Randomness& random)
      : matcher_(grammar),
        names_(std::move(names)),
        tags_(tags),
        random_(random),
        way_out_(*grammar) {}

  std::vector<Token>&& take_tokens() && { return std::move(tokens_); }

  /// False when the text has not more than `max_tokens` but no end either.
  bool run(int64_t free_tokens, int64_t max_tokens) {
    bool ended = false;
    while (!ended && length() < free_tokens) {
      ended = !step();
    }
    if (!ended) {
      const auto left = static_cast<size_t>(std::max<int64_t>(0, max_tokens - length()));
      const auto way = way_out_.find(matcher_.state(), place_, names_, left * kBytesPerToken);
      ended = way && spell(*way);
    }
    return ended && length() <= max_tokens;
  }

 private:
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  size_t uniform(size_t count);
  /// False at the end of the text.
  bool step();
  bool take(Token token);
  bool spell(std::string_view bytes);
  std::string any_name();
  bool take_tag();
  Token any_token(const std::vector<Token>& allowed);

  GrammarMatcher matcher_;
  std::vector<std::string> names_;
  const std::vector<std::string>& tags_;
  Randomness& random_;
  WayOut way_out_;
  JsonPlace place_;
  std::vector<Token> tokens_;
};

/// In blocks, so that a choice among all tokens needs few weights.
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
    return false;
  }
  tokens_.push_back(token);
  place_.take(matcher_.grammar().vocabulary().bytes(token));
  return true;
}

/// Takes the longest tokens; false when the vocabulary cannot spell the bytes.
bool Walk::spell(std::string_view bytes) {
  const TokenTrie& trie = matcher_.grammar().vocabulary().trie();
  while (!bytes.empty()) {
    TokenTrie::Node node = 0;
    TokenTrie::Node longest = 0;
    for (size_t i = 0; i < bytes.size() && node != TokenTrie::kNone; ++i) {
      node = trie.child(node, static_cast<uint8_t>(bytes[i]));
      longest = node != TokenTrie::kNone && !trie.tokens(node).empty() ? node : longest;
    }
    if (longest == 0) {
      return false;
    }
    const Token token = trie.tokens(longest).back();  // byte pieces come before what they double
    SPECDEC_CHECK(take(token), "the grammar allows '{}' but not its token {}", bytes, token);
    bytes.remove_prefix(trie.depth(longest));
  }
  return true;
}

std::string Walk::any_name() {
  std::vector<std::string> possible;
  for (const std::string& name : names_) {
    if (auto text = way_out_.name_here(matcher_.state(), place_, name)) {
      possible.push_back(*std::move(text));
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

Token Walk::any_token(const std::vector<Token>& allowed) {
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
  if (matcher_.is_complete() && !tags_.empty() && random_.chance(kUseTag) && take_tag()) {
    return true;
  }
  if (matcher_.is_complete() && (matcher_.can_only_end() || random_.chance(0.5))) {
    return false;
  }
  if (place_.at_name() && random_.chance(kUseName)) {
    if (const std::string name = any_name(); !name.empty() && spell(name)) {
      return true;
    }
  }
  if (!matcher_.is_complete() && random_.chance(place_.in_string() ? kCloseString : kCloseOther)) {
    const std::string part = way_out_.next_part(matcher_.state(), place_, names_);
    if (!part.empty() && spell(part)) {
      return true;
    }
  }
  const std::vector<Token> allowed = matcher_.mask().tokens();
  SPECDEC_CHECK(!allowed.empty(), "a state of the grammar has no token");
  const Token token = any_token(allowed);
  if (matcher_.grammar().is_end(token)) {
    return false;
  }
  SPECDEC_CHECK(take(token), "the mask allows token {}, but the grammar does not", token);
  return true;
}

void shuffle(std::vector<std::string>& names, Randomness& random) {
  for (size_t rest = names.size(); rest > 1; --rest) {
    const std::vector<double> weights(rest, 1.0);
    std::swap(names[rest - 1], names[static_cast<size_t>(random.draw(weights))]);
  }
}

}  // namespace

std::optional<std::vector<Token>> sample_grammar(
    const std::shared_ptr<const CompiledGrammar>& grammar, const GrammarSampleOptions& options,
    Randomness& random) {
  SPECDEC_CHECK(grammar->start() != Automaton::kDead, "a grammar without texts cannot be sampled");
  int64_t free_tokens = options.max_tokens / 2;
  for (int i = 0; i < kTries; ++i) {
    std::vector<std::string> names = options.names;
    if (i % 2 == 1) {  // in their order they may lead around in circles
      shuffle(names, random);
    }
    Walk walk(grammar, std::move(names), options.tags, random);
    if (walk.run(free_tokens, options.max_tokens)) {
      return std::move(walk).take_tokens();
    }
    free_tokens = i + 2 < kTries ? free_tokens / 2 : 0;
  }
  return std::nullopt;
}

}  // namespace specdec
