#include "grammar/compiled_grammar.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"
#include "grammar/canonical/canonical_masks.h"
#include "grammar/masks/mask_builder.h"
#include "grammar/tables/bounded_cache.h"

namespace specdec {

/// Masks by state, made when first asked for; those not used for longest are dropped.
class CompiledGrammar::Masks {
 public:
  using Content = TokenMask::Content;

  Masks(std::function<Content(StateId)> build, uint64_t max_bytes)
      : build_(std::move(build)), masks_(max_bytes) {}

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

 private:
  static uint64_t size_of(const Content& content) {
    constexpr uint64_t kShared = 16;  // what surrounds a shared value
    return kShared + sizeof content +
           (content.added.capacity() + content.removed.capacity()) * sizeof(Token);
  }

  std::function<Content(StateId)> build_;
  BoundedCache<StateId, std::shared_ptr<const Content>> masks_;
};

CompiledGrammar::CompiledGrammar(std::shared_ptr<GrammarVocabulary> vocabulary,
                                 std::unique_ptr<Automaton> automaton, uint64_t max_mask_bytes,
                                 Cuts cuts, std::shared_ptr<GrammarLanguages> languages)
    : vocabulary_(std::move(vocabulary)),
      languages_(std::move(languages)),
      automaton_(std::move(automaton)) {
  const std::lock_guard lock(vocabulary_->mutex());
  languages_ = languages_ == nullptr ? vocabulary_->languages() : languages_;
  const auto builder =
      std::make_shared<MaskBuilder>(vocabulary_->tokens(), languages_->strings, *automaton_);
  masks_ = std::make_unique<Masks>([builder](StateId state) { return builder->build(state); },
                                   max_mask_bytes);
  start_ = automaton_->start();
  if (cuts == Cuts::kCanonical) {
    SPECDEC_CHECK(vocabulary_->cuts() != nullptr, "canonical cuts of a tokenizer not learned");
    canonical_ = std::make_unique<CanonicalMasks>(
        vocabulary_->tokens(), languages_->shared.regexes, *vocabulary_->cuts(), *automaton_,
        [this](StateId state) { return masks_->at(state); });
    canonical_masks_ = std::make_unique<Masks>(
        [this](StateId state) { return canonical_->build(state); }, max_mask_bytes);
    start_ = canonical_->intern({start_, CanonicalCuts::kStart});
  }
}

CompiledGrammar::~CompiledGrammar() = default;

StateId CompiledGrammar::automaton_state(StateId state) const {
  return canonical_ != nullptr ? canonical_->cut_state(state).state : state;
}

StateId CompiledGrammar::next(StateId state, std::string_view bytes) const {
  const std::lock_guard lock(vocabulary_->mutex());
  state = automaton_state(state);
  for (size_t i = 0; i < bytes.size() && state != Automaton::kDead; ++i) {
    state = automaton_->next(state, static_cast<uint8_t>(bytes[i]));
  }
  return canonical_ != nullptr ? canonical_->intern({state, CanonicalCuts::kStart}) : state;
}

StateId CompiledGrammar::next(StateId state, Token token) const {
  if (state == kEnded || token < 0 || token >= vocab_size()) {
    return Automaton::kDead;
  }
  if (is_end(token)) {
    return is_complete(state) ? kEnded : Automaton::kDead;
  }
  if (vocabulary_->bytes(token).empty()) {
    return Automaton::kDead;
  }
  if (canonical_ == nullptr) {
    return next(state, vocabulary_->bytes(token));
  }
  if (!mask(state).allows(token)) {
    return Automaton::kDead;
  }
  const std::lock_guard lock(vocabulary_->mutex());
  return canonical_->next(state, token);
}

bool CompiledGrammar::is_complete(StateId state) const {
  if (state == kEnded) {
    return true;
  }
  const std::lock_guard lock(vocabulary_->mutex());
  return state != Automaton::kDead && automaton_->is_complete(automaton_state(state));
}

TokenMask CompiledGrammar::mask(StateId state) const {
  if (state == Automaton::kDead || state == kEnded) {
    return TokenMask(std::make_shared<const TokenMask::Content>(), vocab_size());
  }
  const std::lock_guard lock(vocabulary_->mutex());
  Masks& masks = canonical_ != nullptr ? *canonical_masks_ : *masks_;
  return TokenMask(masks.at(state), vocab_size());
}

std::string CompiledGrammar::forced_bytes(StateId state) const {
  if (state == kEnded) {
    return "";
  }
  const std::lock_guard lock(vocabulary_->mutex());
  std::string forced;
  state = automaton_state(state);
  while (state != Automaton::kDead && !automaton_->is_complete(state)) {
    const Automaton::Bytes candidates = automaton_->candidates(state);
    StateId only = Automaton::kDead;
    int alive = 0;
    uint8_t which = 0;
    for (size_t byte = 0; byte < 256 && alive < 2; ++byte) {
      const StateId next =
          candidates[byte] ? automaton_->next(state, static_cast<uint8_t>(byte)) : Automaton::kDead;
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
    state = only;
  }
  return forced;
}

std::optional<std::string> CompiledGrammar::way_out(StateId state) const {
  SPECDEC_CHECK(state != Automaton::kDead, "no way leads out of a text that is not allowed");
  if (state == kEnded) {
    return "";
  }
  const std::lock_guard lock(vocabulary_->mutex());
  return automaton_->way_out(automaton_state(state));
}

std::string CompiledGrammar::explain(StateId state) const {
  if (state == kEnded) {
    return "nothing: the text has ended\n";
  }
  const std::lock_guard lock(vocabulary_->mutex());
  return automaton_->explain(automaton_state(state));
}

bool CompiledGrammar::is_used_up() const {
  const std::lock_guard lock(vocabulary_->mutex());
  return automaton_->used() > 0.5;
}

uint64_t CompiledGrammar::mask_bytes() const {
  const std::lock_guard lock(vocabulary_->mutex());
  return masks_->bytes() + (canonical_masks_ == nullptr ? 0 : canonical_masks_->bytes());
}

bool CompiledGrammar::is_end(Token token) const {
  const std::vector<Token>& ends = vocabulary_->end_tokens();
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

int64_t CompiledGrammar::vocab_size() const { return vocabulary_->vocab_size(); }

std::shared_ptr<const CompiledGrammar> compile_json_schema(
    std::shared_ptr<GrammarVocabulary> vocabulary, std::string_view schema,
    const JsonSchemaOptions& options, const GrammarLimits& limits, bool allow_empty) {
  std::shared_ptr<GrammarLanguages> languages;
  std::unique_ptr<Automaton> automaton;
  {
    const std::lock_guard lock(vocabulary->mutex());
    languages = vocabulary->begin_grammar();
    languages->shared.regexes.allow(limits.max_regex_states);
    automaton = make_json_schema_automaton(languages->shared, parse_json(schema, "schema"), options,
                                           limits);
  }
  auto grammar =
      std::make_shared<CompiledGrammar>(std::move(vocabulary), std::move(automaton),
                                        limits.max_mask_bytes, Cuts::kAny, std::move(languages));
  if (grammar->start() == Automaton::kDead && !allow_empty) {
    throw GrammarError(kNothingSatisfies);
  }
  return grammar;
}

}  // namespace specdec
