#include "grammar/compiled_grammar.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"
#include "grammar/canonical/canonical_masks.h"
#include "grammar/masks/mask_builder.h"
#include "grammar/recent_answers.h"
#include "grammar/tables/bounded_cache.h"

namespace specdec {
namespace {

/// Key of RecentAnswers in place of a token.
constexpr uint32_t kWhetherComplete = ~uint32_t{0};

}  // namespace

/// Masks by state, made when first asked for; those not used for longest are dropped.
class CompiledGrammar::Masks {
 public:
  using Content = TokenMask::Content;

  Masks(std::function<Content(StateId)> build, uint64_t max_bytes)
      : build_(std::move(build)), max_bytes_(max_bytes), masks_(max_bytes) {}

  std::shared_ptr<const Content> at(StateId state) {
    if (const auto* found = masks_.find(state)) {
      return *found;
    }
    const auto made = std::make_shared<const Content>(build_(state));
    const uint64_t base_bytes = made->base == nullptr ? 0 : made->base->size() * sizeof(uint32_t);
    masks_.add(state, made, size_of(*made), {made->base.get(), base_bytes});
    return made;
  }
  uint64_t bytes() const { return masks_.bytes(); }

  /// True when hundreds of such masks fit the bounds.
  bool is_small(const Content& content) const {
    constexpr uint64_t kMany = 1024;
    return size_of(content) <= max_bytes_ / kMany;
  }

 private:
  static uint64_t size_of(const Content& content) {
    constexpr uint64_t kShared = 16;  // what surrounds a shared value
    return kShared + sizeof content +
           (content.added.capacity() + content.removed.capacity()) * sizeof(Token);
  }

  std::function<Content(StateId)> build_;
  uint64_t max_bytes_;
  BoundedCache<StateId, std::shared_ptr<const Content>> masks_;
};

CompiledGrammar::CompiledGrammar(std::shared_ptr<GrammarVocabulary> vocabulary,
                                 std::unique_ptr<Automaton> automaton, uint64_t max_mask_bytes,
                                 Cuts cuts, std::shared_ptr<GrammarLanguages> languages)
    : vocabulary_(std::move(vocabulary)),
      languages_(std::move(languages)),
      automaton_(std::move(automaton)),
      named_tokens_(automaton_->named_tokens()),
      recent_(std::make_unique<RecentAnswers>()) {
  languages_ = languages_ == nullptr ? vocabulary_->languages() : languages_;
  const auto builder =
      std::make_shared<MaskBuilder>(vocabulary_->tokens(), languages_->strings, *automaton_);
  masks_ = std::make_unique<Masks>([builder](StateId state) { return builder->build(state); },
                                   max_mask_bytes);
  start_ = automaton_->start();
  is_used_up_ = automaton_->used() > 0.5;
  if (cuts == Cuts::kCanonical) {
    SPECDEC_CHECK(vocabulary_->cuts() != nullptr, "canonical cuts of a tokenizer not learned");
    canonical_ = std::make_unique<CanonicalMasks>(
        vocabulary_->tokens(), languages_->shared.regexes, *vocabulary_->cuts(), *automaton_,
        [this](StateId state) { return masks_->at(automaton_->mask_state(state)); });
    canonical_masks_ = std::make_unique<Masks>(
        [this](StateId state) { return canonical_->build(state); }, max_mask_bytes);
    start_ = canonical_->intern({start_, CanonicalCuts::kStart});
  }
}

CompiledGrammar::~CompiledGrammar() = default;

StateId CompiledGrammar::automaton_state(StateId state) const {
  return canonical_ != nullptr ? canonical_->cut_state(state).state : state;
}

template <class Answer, class Work>
Answer CompiledGrammar::within_limits(StateId state, Answer otherwise, const Work& work) const {
  const std::lock_guard lock(mutex_);
  try {
    automaton_->begin_call();
    Answer answer = work();
    is_used_up_ = automaton_->used() > 0.5;
    return answer;
  } catch (const GrammarError& error) {  // mistakes were found when it was compiled
    limits_.try_emplace(state, error.what());
    has_limits_ = true;
    is_used_up_ = automaton_->used() > 0.5;
    return otherwise;
  }
}

std::optional<std::string> CompiledGrammar::limit(StateId state) const {
  if (!has_limits_) {
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  const auto found = limits_.find(state);
  return found == limits_.end() ? std::nullopt : std::optional(found->second);
}

std::shared_ptr<const CompiledGrammar> CompiledGrammar::recompile() const {
  try {
    return compile_ == nullptr ? nullptr : compile_();
  } catch (const GrammarError&) {  // it was compiled once: others took what they share
    return nullptr;
  }
}

StateId CompiledGrammar::walk(StateId state, std::string_view bytes) const {
  for (size_t i = 0; i < bytes.size() && state != Automaton::kDead; ++i) {
    state = automaton_->next(state, static_cast<uint8_t>(bytes[i]));
  }
  return state;
}

StateId CompiledGrammar::next(StateId state, std::string_view bytes) const {
  return within_limits(state, StateId{Automaton::kDead}, [&] {
    const StateId after = walk(automaton_state(state), bytes);
    return canonical_ != nullptr ? canonical_->intern({after, CanonicalCuts::kStart}) : after;
  });
}

StateId CompiledGrammar::next_named(StateId state, Token token) const {
  return within_limits(state, StateId{Automaton::kDead}, [&] {
    const StateId after = automaton_->next_token(automaton_state(state), token);
    return canonical_ != nullptr ? canonical_->intern({after, CanonicalCuts::kStart}) : after;
  });
}

StateId CompiledGrammar::next(StateId state, Token token) const {
  if (state == kEnded || token < 0 || token >= vocab_size()) {
    return Automaton::kDead;
  }
  if (std::binary_search(named_tokens_.begin(), named_tokens_.end(), token)) {
    const StateId next = next_named(state, token);
    const bool is_last = is_end(token) && is_complete(next == Automaton::kDead ? state : next);
    return is_last ? StateId{kEnded} : next;
  }
  if (is_end(token)) {
    return is_complete(state) ? kEnded : Automaton::kDead;
  }
  if (vocabulary_->bytes(token).empty()) {
    return Automaton::kDead;
  }
  const auto key = static_cast<uint32_t>(token);
  if (const auto known = recent_->step(state, key)) {
    return *known;
  }
  if (canonical_ != nullptr && !mask(state).allows(token)) {
    return Automaton::kDead;
  }
  const StateId after = within_limits(state, StateId{Automaton::kDead}, [&] {
    return canonical_ != nullptr ? canonical_->next(state, token)
                                 : automaton_->end_token(walk(state, vocabulary_->bytes(token)));
  });
  if (!limit(state)) {
    recent_->add_step(state, key, after);
  }
  return after;
}

bool CompiledGrammar::is_complete(StateId state) const {
  if (state == kEnded || state == Automaton::kDead) {
    return state == kEnded;
  }
  if (const auto known = recent_->step(state, kWhetherComplete)) {
    return *known != 0;
  }
  const bool complete =
      within_limits(state, false, [&] { return automaton_->is_complete(automaton_state(state)); });
  if (!limit(state)) {
    recent_->add_step(state, kWhetherComplete, complete ? 1 : 0);
  }
  return complete;
}

TokenMask CompiledGrammar::mask(StateId state) const {
  if (auto known = recent_->mask(state)) {
    return TokenMask(std::move(known), vocab_size());
  }
  const auto none = std::make_shared<const TokenMask::Content>();
  if (state == Automaton::kDead || state == kEnded) {
    return TokenMask(none, vocab_size());
  }
  Masks& masks = canonical_ != nullptr ? *canonical_masks_ : *masks_;
  auto content = within_limits(state, std::shared_ptr<const TokenMask::Content>(), [&] {
    const StateId like = canonical_ != nullptr ? state : automaton_->mask_state(state);
    auto made = unknown_masks_.contains(state) ? none : masks.at(like);
    mask_bytes_ = masks_->bytes() + (canonical_masks_ == nullptr ? 0 : canonical_masks_->bytes());
    return made;
  });
  if (content == nullptr) {
    const std::lock_guard lock(mutex_);
    unknown_masks_.insert(state);
    content = none;
  }
  if (masks.is_small(*content) && !limit(state)) {
    recent_->add_mask(state, content);
  }
  return TokenMask(std::move(content), vocab_size());
}

std::string CompiledGrammar::forced_bytes(StateId state) const {
  if (state == kEnded) {
    return "";
  }
  std::string forced;
  return within_limits(state, std::string(), [&] {
    StateId at = automaton_state(state);
    while (at != Automaton::kDead && !automaton_->is_complete(at) &&
           automaton_->tokens(at).empty()) {
      const Automaton::Bytes candidates = automaton_->candidates(at);
      StateId only = Automaton::kDead;
      int alive = 0;
      uint8_t which = 0;
      for (size_t byte = 0; byte < 256 && alive < 2; ++byte) {
        const StateId next = candidates[byte] ? automaton_->next(at, static_cast<uint8_t>(byte))
                                              : StateId{Automaton::kDead};
        if (next != Automaton::kDead) {
          ++alive;
          only = next;
          which = static_cast<uint8_t>(byte);
        }
      }
      if (alive != 1) {
        break;
      }
      forced += static_cast<char>(which);
      at = only;
    }
    return forced;
  });
}

std::optional<std::string> CompiledGrammar::completion(StateId state) const {
  SPECDEC_CHECK(state != Automaton::kDead, "no way leads out of a text that is not allowed");
  if (state == kEnded) {
    return "";
  }
  return within_limits(state, std::optional<std::string>(),
                       [&] { return automaton_->completion(automaton_state(state)); });
}

std::optional<Token> CompiledGrammar::completion_token(StateId state) const {
  if (state == kEnded || named_tokens_.empty()) {
    return std::nullopt;
  }
  return within_limits(state, std::optional<Token>(),
                       [&] { return automaton_->completion_token(automaton_state(state)); });
}

std::string CompiledGrammar::explain(StateId state) const {
  if (state == kEnded) {
    return "nothing: the text has ended\n";
  }
  const std::string text = within_limits(
      state, std::string(), [&] { return automaton_->explain(automaton_state(state)); });
  const auto reached = limit(state);
  return reached ? text + "unknown: " + *reached + "\n" : text;
}

std::vector<Capture> CompiledGrammar::captures(std::span<const TextPart> text) const {
  const std::lock_guard lock(mutex_);
  automaton_->begin_call();
  return automaton_->captures(text);
}

bool CompiledGrammar::is_used_up() const { return is_used_up_; }

uint64_t CompiledGrammar::mask_bytes() const { return mask_bytes_; }

bool CompiledGrammar::is_end(Token token) const {
  const std::vector<Token>& ends = vocabulary_->end_tokens();
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

int64_t CompiledGrammar::vocab_size() const { return vocabulary_->vocab_size(); }

std::shared_ptr<const CompiledGrammar> compile_automaton(
    const std::shared_ptr<GrammarVocabulary>& vocabulary, const GrammarLimits& limits, Cuts cuts,
    const MakeAutomaton& make) {
  std::shared_ptr<GrammarLanguages> languages = vocabulary->begin_grammar();
  languages->shared.regexes.allow(limits.max_regex_states);
  std::unique_ptr<Automaton> automaton = make(languages->shared);
  auto grammar = std::make_shared<CompiledGrammar>(
      vocabulary, std::move(automaton), limits.max_mask_bytes, cuts, std::move(languages));
  grammar->remember([vocabulary, limits, cuts, make] {
    return compile_automaton(vocabulary, limits, cuts, make);
  });
  return grammar;
}

std::shared_ptr<const CompiledGrammar> compile_json_schema(
    const std::shared_ptr<GrammarVocabulary>& vocabulary, std::string_view schema,
    const JsonSchemaOptions& options, const GrammarLimits& limits, bool allow_empty) {
  const auto make = [text = std::string(schema), options, limits](SharedLanguages& languages) {
    return make_json_schema_automaton(languages, parse_json(text, "schema"), options, limits);
  };
  auto grammar = compile_automaton(vocabulary, limits, Cuts::kAny, make);
  if (grammar->start() == Automaton::kDead && !allow_empty) {
    throw GrammarError(kNothingSatisfies);
  }
  return grammar;
}

}  // namespace specdec
