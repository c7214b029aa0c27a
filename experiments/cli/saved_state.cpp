#include "experiments/cli/saved_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "experiments/cli/replaced_file.h"
#include "experiments/terminal/command_line.h"
#include "grammar/grammar_source.h"

namespace specdec {

std::string grammar_name(const std::optional<GrammarConfig>& grammar,
                         const std::optional<std::string>& argument) {
  if (!grammar) {
    return "";
  }
  const GrammarSource& source = grammar->source;
  const bool is_inline = !argument->empty() && argument->front() == '{';
  const std::string text = fmt::format("{}\n{}\n{}\n{}", grammar_kind_name(source.kind),
                                       source.start, source.text, is_inline ? *argument : "");
  return fmt::format("{:016x}", hash_bytes(kHashStart, text.data(), text.size()));
}

std::string asked_text(const GlobalFlags& flags) {
  std::string text;
  for (const auto& [name, value] : {std::pair("--device", flags.device),
                                    {"--dtype", flags.dtype},
                                    {"--activations", flags.activations},
                                    {"--kv-dtype", flags.kv_dtype},
                                    {"--cache", flags.cache}}) {
    if (!value.empty()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, value);
    }
  }
  return text;
}

GenerationState load_state(const std::string& file, const std::string& grammar) {
  GenerationState state = read_state(file);
  if (state.grammar != grammar) {
    throw ConfigError(fmt::format(
        "{}: was generated {}; {}", file,
        state.grammar.empty() ? "without a grammar" : "under a grammar",
        state.grammar.empty() ? "leave out --grammar"
                              : "give the same --grammar again, with the text it had then"));
  }
  return state;
}

void check_state_output(const std::string& file) {
  keep_other_file("--save-state", file, "state of a generation",
                  [&] { return begins_with(file, "SPECDEC\n"); });
}

void check_can_resume(const DecodingStrategy& strategy) {
  if (!strategy.can_resume()) {
    throw ConfigError(
        "--save-state and --resume: this strategy draws whole outputs and cannot go on with one: "
        "use autoregressive or speculative");
  }
}

std::unique_ptr<PrefixStore> known_prefixes(int64_t cache_mb, GenerationState& state,
                                            LanguageModel& target) {
  int64_t bytes = cache_mb << 20U;
  const bool was_read = !state.output.empty() || !state.cached.key.empty();
  if (was_read) {
    check_target(state, target);
  }
  const bool has_cache = state.cached.snapshot != nullptr;
  bytes = std::max(bytes, has_cache ? state.cached.snapshot->bytes() : 0);
  if (bytes == 0) {
    return nullptr;
  }
  auto store = std::make_unique<PrefixStore>(bytes);
  if (has_cache) {
    store->insert(std::move(state.cached));
  }
  return store;
}

StateSaver::StateSaver(const std::string& file, GenerationState& state, LanguageModel& target)
    : state_(state), target_(target) {
  if (!file.empty()) {
    file_.emplace(file);
  }
}

std::function<void(TokenSpan)> StateSaver::collector() {
  return [this](TokenSpan tokens) {
    if (is_wanted()) {
      state_.output.insert(state_.output.end(), tokens.begin(), tokens.end());
    }
  };
}

void StateSaver::save() {
  if (is_wanted()) {
    keep_cache(state_, target_);
    write_state(state_, *file_);
  }
}

}  // namespace specdec
