#include "decoders/session.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/kernels/probs.h"
#include "decoders/analysis/draft_overlap.h"
#include "decoders/draft_grammar.h"

namespace specdec {
namespace {

void check_stop_rule(const Request& request) {
  const StopRule& stop = request.stop;
  if (stop.max_new_tokens < 1) {
    throw ConfigError(
        fmt::format("max_new_tokens is {}; it must be at least 1", stop.max_new_tokens));
  }
  if (!stop.stop_strings.empty() && request.tokenizer == nullptr) {
    throw ConfigError("stop_strings need a tokenizer, and this model comes without one");
  }
  if (std::find(stop.stop_strings.begin(), stop.stop_strings.end(), "") !=
      stop.stop_strings.end()) {
    throw ConfigError("stop_strings holds an empty string, which every output contains");
  }
}

}  // namespace

Session::Session(const Request& request, const LanguageModel& target)
    : request_(request),
      max_length_(target.max_length()),
      vocab_size_(target.vocab_size()),
      committed_(request.prompt.begin(), request.prompt.end()),
      mark_(Clock::now()) {
  request.sampling.validate();
  check_stop_rule(request);
  for (const std::string& stop_string : request.stop.stop_strings) {
    longest_stop_string_ = std::max(longest_stop_string_, stop_string.size());
  }
  if (request.constraint.grammar != nullptr) {
    grammar_.emplace(request.constraint.grammar);
    if (grammar_->grammar().vocab_size() > vocab_size_) {
      throw ConfigError(
          fmt::format("the grammar was compiled for a vocabulary of {} tokens, and the model has "
                      "{}: compile it with the model's own tokenizer",
                      grammar_->grammar().vocab_size(), vocab_size_));
    }
  }
}

DraftLimits Session::draft_limits() const {
  const auto produced = static_cast<int64_t>(generation_.tokens.size());
  const int64_t wanted = request_.stop.max_new_tokens - produced - 1;
  // The forward holds everything committed and the draft; the bonus token needs no place yet.
  const int64_t room = max_length_ - static_cast<int64_t>(committed_.size());
  const int64_t depth = std::max<int64_t>(0, std::min(wanted, room));
  return {.tokens = depth > 0 ? room : 0, .depth = depth, .branches = room};
}

Randomness& Session::random(Purpose purpose) {
  request_.random.seek(static_cast<int64_t>(committed_.size()), purpose);
  return request_.random;
}

Draft Session::certain() const {
  Draft draft = Draft::root(newest());
  const int64_t most = draft_limits().depth;
  if (grammar_ && request_.constraint.forced && most > 0) {
    for (const Token token : certain_tokens(*grammar_, most)) {
      draft.add(token, draft.size() - 1);
    }
  }
  return draft;
}

DraftContext Session::context(DraftShape& shape, const StepResult* last_step,
                              const ForwardResult* prompt_result) {
  const DraftLimits fits = draft_limits();
  return {.committed = committed_,
          .last_step = last_step,
          .prompt_result = prompt_result,
          .random = random(Purpose::kDraft),
          .sampling = sampling(),
          .grammar = request_.constraint.mask_drafts ? grammar() : nullptr,
          .max_tokens = fits.tokens,
          .max_depth = fits.depth,
          .max_branches = fits.branches,
          .shape = shape};
}

void Session::find_masks(const Draft& draft) {
  if (!grammar_) {
    return;
  }
  const Clock::time_point begin = Clock::now();
  std::vector<int64_t> parents(draft.parents.begin() + 1, draft.parents.end());
  for (int64_t& parent : parents) {
    --parent;  // the matcher stands at the root
  }
  masks_ = grammar_->tree_masks(TokenSpan(draft.tokens).subspan(1), parents);
  masks_.insert(masks_.begin(), grammar_->mask());
  step_.mask_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

ScoreFilter Session::filter(int64_t node) const {
  return grammar_ ? filter_of(masks_[static_cast<size_t>(node)]) : ScoreFilter();
}

void Session::weigh(const Draft& draft, int64_t node, std::span<double> distribution) const {
  if (request_.weights == nullptr) {
    return;
  }
  request_.weights->weigh(draft.history(generation_.tokens, node), distribution);
  divide(distribution, sum_of(distribution).sum);
}

TargetProbs Session::target_probs(const Draft& draft, const Tensor& logits) {
  const int64_t nodes = draft.size();
  SPECDEC_CHECK(logits.dim() == 2 && logits.size(0) == nodes && logits.size(1) == vocab_size_,
                "target_probs: {} logits for {} nodes and a vocabulary of {}", logits.numel(),
                nodes, vocab_size_);
  if (!probs_.defined() || probs_.size(0) < nodes) {
    probs_ = at::empty({nodes, vocab_size_}, at::kDouble);
  }
  logits_ = logits;
  find_masks(draft);
  gaps_.assign(static_cast<size_t>(nodes), 0.0);
  auto* row = probs_.data_ptr<double>();
  const bool penalised = sampling().repetition_penalty != 1.0;
  for (int64_t node = 0; node < nodes; ++node, row += vocab_size_) {
    const std::vector<Token> seen =
        penalised ? draft.history(committed(), node) : std::vector<Token>();
    const std::span<double> distribution(row, static_cast<size_t>(vocab_size_));
    if (sampling().greedy()) {
      const GreedyChoice best =
          greedy_choice(logits.select(0, node), seen, sampling(), filter(node));
      std::fill(distribution.begin(), distribution.end(), 0.0);
      distribution[static_cast<size_t>(best.token)] = 1.0;
      gaps_[static_cast<size_t>(node)] = best.gap;
    } else {
      target_distribution(logits.select(0, node), seen, sampling(), distribution, filter(node));
      weigh(draft, node, distribution);
    }
  }
  return TargetProbs(probs_.narrow(0, 0, nodes));
}

Token Session::draw(const Draft& chain, const Tensor& logits) {
  TargetProbs target = target_probs(chain, logits);
  const Probs weights = target.after(chain.proposed());
  if (sampling().greedy()) {  // a greedy distribution needs no randomness; drawing from it would
                              // only cost time
    return static_cast<Token>(argmax(weights));
  }
  request_.random.seek(static_cast<int64_t>(committed_.size()) + chain.proposed(),
                       Purpose::kSample);
  return static_cast<Token>(request_.random.draw(weights));
}

void Session::commit_prefill(const Tensor& logits) {
  const int64_t root = 0;
  const Token token = draw(Draft::root(newest()), logits.cpu().unsqueeze(0));
  append({&token, 1}, {&root, 1});
  generation_.prefill_seconds = lap();
  step_ = {};
}

void Session::commit_next(const Tensor& logits) {
  const int64_t root = 0;
  const Token token = draw(Draft::root(newest()), logits.cpu().unsqueeze(0));
  append({&token, 1}, {&root, 1});
  step_.other_seconds = lap();
  generation_.steps.push_back(std::exchange(step_, {}));
}

void Session::commit_certain(const Draft& chain, const Tensor& logits) {
  commit(chain, {.path = chain_path(chain.size()), .next = draw(chain, logits)});
}

void Session::commit(const Draft& draft, const VerifyResult& result) {
  SPECDEC_CHECK(!result.path.empty() && result.path.front() == 0,
                "a result's path begins at the root");
  std::vector<Token> tokens;
  for (const int64_t node : std::span(result.path).subspan(1)) {
    tokens.push_back(draft.tokens[static_cast<size_t>(node)]);
  }
  tokens.push_back(result.next);
  append(tokens, result.path);
  count(draft, result);
  step_.other_seconds = lap();
  generation_.steps.push_back(std::exchange(step_, {}));
}

void Session::commit_given(Token token) {
  const int64_t none = -1;
  append({&token, 1}, {&none, 1});
  step_ = {};
}

void Session::count(const Draft& draft, const VerifyResult& result) {
  const int64_t accepted = std::ssize(result.path) - 1;
  const bool cut = step_.committed <= accepted;  // the text ended at an accepted token
  step_.accepted = std::min(accepted, step_.committed);
  const std::vector<int64_t> depths = draft.depths();
  const int64_t end = cut ? step_.accepted : draft.depth();
  step_.depth = end;
  step_.drafted = std::count_if(depths.begin() + 1, depths.end(),
                                [end](int64_t depth) { return depth <= end; });
  if (request_.log_overlaps) {
    TargetProbs target(probs_.narrow(0, 0, draft.size()));
    step_.overlaps = draft_overlaps(draft, target, end);
  }
  if (grammar_) {
    count_by_freedom(draft, result, end);
  }
}

void Session::count_by_freedom(const Draft& draft, const VerifyResult& result, int64_t end) {
  const std::vector<int64_t> depths = draft.depths();
  std::vector<bool> accepted(draft.tokens.size(), false);
  for (const int64_t node : result.path) {
    accepted[static_cast<size_t>(node)] = true;
  }
  std::vector<int64_t> children(draft.tokens.size(), 0);
  std::vector<int64_t> taken(draft.tokens.size(), 0);
  for (size_t node = 1; node < draft.tokens.size(); ++node) {
    if (depths[node] > end) {
      continue;
    }
    const auto parent = static_cast<size_t>(draft.parents[node]);
    ++children[parent];
    taken[parent] += accepted[node] ? 1 : 0;
  }
  for (size_t node = 0; node < children.size(); ++node) {
    if (children[node] > 0) {
      DraftCounts& counts = step_.by_freedom[static_cast<size_t>(freedom_of(masks_[node]))];
      counts.drafted += children[node];
      counts.accepted += taken[node];
    }
  }
}

void Session::follow_grammar(Token token, int64_t node) {
  if (!grammar_) {
    return;
  }
  if (!grammar_->accept(token)) {
    throw Error(fmt::format("token {} was committed, which the grammar forbids there", token));
  }
  if (node >= 0) {
    const LogMasses masses =
        log_masses(logits_.select(0, node), committed(), sampling(), filter(node), token);
    generation_.log_allowed.push_back(masses.allowed);
    generation_.log_probs.push_back(masses.token);
    generation_.mask_fallbacks += masks_[static_cast<size_t>(node)].is_fallback() ? 1 : 0;
  }
}

void Session::append(std::span<const Token> tokens, std::span<const int64_t> nodes) {
  SPECDEC_CHECK(!finished_, "the generation is over already");
  const size_t before = committed_.size();
  for (size_t i = 0; i < tokens.size() && !finished_; ++i) {
    follow_grammar(tokens[i], nodes[i]);
    committed_.push_back(tokens[i]);
    generation_.tokens.push_back(tokens[i]);
    if (sampling().greedy()) {
      generation_.gaps.push_back(nodes[i] < 0 ? 0.0 : gaps_[static_cast<size_t>(nodes[i])]);
    }
    check_stop(tokens[i]);
  }
  step_.committed = static_cast<int64_t>(committed_.size() - before);
  if (request_.on_tokens) {
    request_.on_tokens(TokenSpan(committed_).subspan(before));
  }
}

void Session::check_stop(Token token) {
  const StopRule& rule = request_.stop;
  const auto produced = static_cast<int64_t>(generation_.tokens.size());
  if (const auto reason = rule.reason(token)) {
    stop(*reason);
  } else if (completes_stop_string(token)) {
    stop(StopReason::kStopString);
  } else if (grammar_ && grammar_->is_ended()) {
    stop(StopReason::kEndOfSequence);
  } else if (grammar_ && grammar_->can_only_end()) {
    stop(StopReason::kGrammarEnd);
  } else if (produced >= rule.max_new_tokens) {
    stop(StopReason::kMaxNewTokens);
  } else if (static_cast<int64_t>(committed_.size()) > max_length_) {
    stop(StopReason::kContextFull);
  }
}

bool Session::completes_stop_string(Token token) {
  // A model's vocabulary may be padded beyond its tokenizer's; such tokens stand for no bytes.
  if (longest_stop_string_ == 0 || token >= request_.tokenizer->vocab_size()) {
    return false;
  }
  tail_ += request_.tokenizer->token_bytes(token);
  const auto& stop_strings = request_.stop.stop_strings;
  const bool found = std::any_of(
      stop_strings.begin(), stop_strings.end(),
      [&](const std::string& stop_string) { return tail_.find(stop_string) != std::string::npos; });
  if (tail_.size() >= longest_stop_string_) {
    tail_.erase(0, tail_.size() - longest_stop_string_ + 1);
  }
  return found;
}

void Session::stop(StopReason reason) {
  finished_ = true;
  generation_.stop_reason = reason;
}

double Session::lap() {
  const Clock::time_point now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(mark_, now)).count();
}

void Session::drafted() { step_.draft_seconds += lap(); }

void Session::verified() { step_.verify_seconds += lap(); }

Generation Session::finish() && {
  for (const StepStatistics& step : generation_.steps) {
    generation_.decode_seconds += step.draft_seconds + step.verify_seconds + step.other_seconds;
  }
  return std::move(generation_);
}

std::optional<StopReason> StopRule::reason(Token token) const {
  const auto is_in = [&](const std::vector<Token>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (is_in(end_ids)) {
    return StopReason::kEndOfSequence;
  }
  return is_in(stop_ids) ? std::optional(StopReason::kStopId) : std::nullopt;
}

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfSequence:
      return "end_of_sequence";
    case StopReason::kStopId:
      return "stop_id";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kGrammarEnd:
      return "grammar_end";
    case StopReason::kMaxNewTokens:
      return "max_new_tokens";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kNoneAccepted:
      return "none_accepted";
  }
  return "unknown";
}

bool ends_text(StopReason reason) {
  return reason == StopReason::kEndOfSequence || reason == StopReason::kGrammarEnd;
}

}  // namespace specdec
