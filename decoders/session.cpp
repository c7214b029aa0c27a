#include "decoders/session.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/prefix_store.h"
#include "core/stopwatch.h"
#include "decoders/analysis/draft_overlap.h"
#include "decoders/draft_checks.h"
#include "decoders/draft_grammar.h"
#include "decoders/request_checks.h"
#include "grammar/forced_tokens.h"

namespace specdec {

Session::Session(const Request& request, const LanguageModel& target)
    : request_(request),
      text_(request, target.max_length(), target.vocab_size()),
      distributions_(request, text_, target.vocab_size(), &step_.mask_seconds) {
  request.sampling.validate();
  check_logit_bias(request.sampling, target.vocab_size());
  check_prompt(request, target);
}

Randomness& Session::random(Purpose purpose) {
  request_.random.seek(std::ssize(committed()), purpose);
  return request_.random;
}

DeviceRandomness Session::device_random() const {
  return {.key = request_.random.device_key().value(), .position = std::ssize(committed())};
}

Draft Session::forced() {
  const int64_t most = draft_limits().depth;
  // What a grammar forces, weights may forbid: such a token is chosen as any other.
  if (grammar() == nullptr || !request_.constraint.forced || most < 1 ||
      request_.weights != nullptr) {
    return Draft::root(newest());
  }
  const ScopedSeconds timer(&step_.mask_seconds);
  return forced_chain(newest(), forced_tokens(*grammar(), most), sampling());
}

DraftContext Session::context(DraftShape& shape, const StepResult* last_step,
                              const ForwardResult* prompt_result) {
  const DraftLimits fits = draft_limits();
  return {.committed = committed(),
          .last_step = last_step,
          .prompt_result = prompt_result,
          .random = random(Purpose::kDraft),
          .sampling = sampling(),
          .grammar = request_.constraint.mask_drafts ? grammar() : nullptr,
          .max_tokens = fits.tokens,
          .max_depth = fits.depth,
          .max_branches = fits.branches,
          .shape = shape,
          .vocab_size = distributions_.vocab_size(),
          .read_backs = &step_.draft_read_backs,
          .prompt_seconds = &step_.prompt_draft_seconds,
          .mask_seconds = &step_.mask_seconds};
}

TargetProbs& Session::target_probs(const Draft& draft, const ForwardResult& result) {
  TargetProbs& probs = distributions_.find(draft, result);
  step_.read_backs += distributions_.read_backs();
  waited_ += distributions_.device_seconds();
  return probs;
}

std::optional<VerifyResult> Session::decide(DeviceRule rule, const Draft& draft,
                                            const ForwardResult& result) {
  step_.read_backs += result.read_backs;
  const std::optional<DeviceDecision> decided = distributions_.decide(rule, draft, result);
  waited_ += distributions_.device_seconds();
  if (!decided) {
    return std::nullopt;
  }
  step_.read_backs += decided->read_backs;
  return decided->verified;
}

VerifyResult Session::verify(const Verifier& verifier, const Draft& draft,
                             const ForwardResult& result) {
  if (const auto decided = decide(verifier.device_rule(), draft, result)) {
    return *decided;
  }
  return verifier.verify(draft, target_probs(draft, result), std::ssize(committed()),
                         random(Purpose::kVerify));
}

Token Session::draw(const Draft& chain, const ForwardResult& result) {
  if (const auto decided = decide(DeviceRule::kDraw, chain, result)) {
    return decided->next;
  }
  TargetProbs& target = target_probs(chain, result);
  if (sampling().greedy()) {  // a greedy distribution needs no randomness; drawing from it would
                              // only cost time
    return target.best(chain.proposed());
  }
  request_.random.seek(std::ssize(committed()) + chain.proposed(), Purpose::kSample);
  return target.draw(chain.proposed(), request_.random);
}

void Session::append_drawn(const ForwardResult& result) {
  const int64_t root = 0;
  const Token token = draw(Draft::root(newest()), result);
  append({&token, 1}, {&root, 1});
}

ForwardResult Session::read(LanguageModel& target, TokenSpan text,
                            const ForwardOptions& options) const {
  if (request_.prompt_logits.defined()) {
    return {.logits = request_.prompt_logits.unsqueeze(0)};
  }
  if (!request_.embeddings.defined()) {
    return prefill_with(request_.prefixes, target, text, options);
  }
  const TokenSpan resumed = text.subspan(request_.prompt.size());
  const Tensor& own = request_.embeddings;
  if (resumed.empty()) {
    return target.prefill(text, options, {.embeddings = own});
  }
  const Tensor rest = target.internals()->embed(token_tensor(resumed));  // not to be rounded
  return target.prefill(text, options, {.embeddings = at::cat({own.to(rest), rest})});
}

ForwardOptions Session::prompt_options(ForwardOptions options) const {
  options.library_products = request_.library_products;
  return options;
}

ForwardResult Session::prefill(LanguageModel& target, const ForwardOptions& options) {
  const bool goes_on = !request_.resumed.empty();
  const TokenSpan text = goes_on ? committed().first(committed().size() - 1) : committed();
  wants_states_ = !PromptStates::name_of(options).empty();
  ForwardOptions own = prompt_options(options);
  own.logits_use = logits_use();
  ForwardResult result = read(target, text, own);
  if (goes_on) {
    generation_.prefill_seconds = stopwatch_.lap();
    start_step();
  } else {
    commit_prefill(result);
  }
  return result;
}

void Session::remember(LanguageModel& target) const {
  const bool by_tokens = !request_.embeddings.defined() && !request_.prompt_logits.defined();
  if (by_tokens && !wants_states_ && request_.prefixes != nullptr &&
      target.snapshots() != nullptr) {
    request_.prefixes->insert(cached_prefix(target, committed()));
  }
}

void Session::commit_prefill(const ForwardResult& result) {
  if (!finished()) {  // else even the first token exceeds the grammar's limits
    append_drawn(result);
  }
  generation_.prefill_seconds = stopwatch_.lap();
  measure_masses();
  start_step();
}

void Session::commit_next(const ForwardResult& result) {
  append_drawn(result);
  end_step();
}

void Session::commit_forced(const Draft& chain, const ForwardResult& result) {
  commit(chain, {.path = chain_path(chain.size()), .next = draw(chain, result)});
}

void Session::commit(const Draft& draft, const VerifyResult& result) {
  check_result(draft, result, distributions_.vocab_size());
  std::vector<Token> tokens;
  for (const int64_t node : std::span(result.path).subspan(1)) {
    tokens.push_back(draft.tokens[static_cast<size_t>(node)]);
  }
  tokens.push_back(result.next);
  append(tokens, result.path);
  count_draft(draft, result, step_);
  if (request_.log_rejected) {
    step_.rejected = rejected_branches(draft, result, step_.committed);
  }
  if (grammar() != nullptr) {
    count_by_freedom(draft, result, distributions_.masks(), step_);
  }
  end_times();
  measure_masses();
  if (request_.log_overlaps) {  // of whole rows, which the verifier did not need: not timed
    step_.overlaps = draft_overlaps(draft, distributions_.probs(), step_.depth);
    stopwatch_.lap();
  }
  generation_.steps.push_back(std::exchange(step_, {}));
}

void Session::commit_given(Token token) {
  const int64_t none = -1;
  append({&token, 1}, {&none, 1});
  start_step();
}

void Session::append(std::span<const Token> tokens, std::span<const int64_t> nodes) {
  SPECDEC_CHECK(!finished(), "the generation is over already");
  const size_t before = committed().size();
  for (size_t i = 0; i < tokens.size() && !finished(); ++i) {
    const size_t length = committed().size();
    text_.append(tokens[i]);
    if (committed().size() > length) {
      note(nodes[i]);
    }
  }
  step_.committed = static_cast<int64_t>(committed().size() - before);
  if (request_.on_tokens) {
    request_.on_tokens(committed().subspan(before));
  }
}

void Session::note(int64_t node) {
  if (sampling().greedy()) {
    generation_.gaps.push_back(node < 0 ? 0.0 : distributions_.gap(node));
  }
  if (grammar() != nullptr && node >= 0) {
    unmeasured_.push_back({committed().size() - 1, node});
    const TokenMask& mask = distributions_.masks()[static_cast<size_t>(node)];
    generation_.mask_fallbacks += mask.is_fallback() ? 1 : 0;
  }
}

void Session::measure_masses() {
  if (unmeasured_.empty()) {
    return;
  }
  for (const auto& [position, node] : unmeasured_) {
    const LogMasses masses =
        distributions_.masses(node, committed().first(position), committed()[position]);
    generation_.log_allowed.push_back(masses.allowed);
    generation_.log_probs.push_back(masses.token);
  }
  unmeasured_.clear();
  stopwatch_.lap();
}

void Session::start_step() {
  step_ = {};
  waited_ = 0.0;
}

void Session::end_times() {
  step_.other_seconds = stopwatch_.lap() - waited_;
  step_.verify_seconds += std::exchange(waited_, 0.0);
}

void Session::end_step() {
  end_times();
  measure_masses();
  generation_.steps.push_back(std::exchange(step_, {}));
}

Generation Session::finish() && {
  const TokenSpan all = text_.output();  // shorter than what it resumes at a grammar's limit
  const TokenSpan output = all.subspan(std::min(all.size(), request_.resumed.size()));
  generation_.tokens.assign(output.begin(), output.end());
  generation_.stop_reason = text_.end().value_or(generation_.stop_reason);
  for (const StepStatistics& step : generation_.steps) {
    generation_.decode_seconds += step.draft_seconds + step.verify_seconds + step.other_seconds;
  }
  return std::move(generation_);
}

}  // namespace specdec
