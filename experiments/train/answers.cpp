#include "experiments/train/answers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <optional>
#include <utility>

#include "core/error.h"
#include "experiments/components/model_loading.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/train/answer_files.h"
#include "experiments/train/dialogue.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

/// The target as `generate` loads it, with room in its cache for all rows, which a GPU takes now.
std::unique_ptr<TransformerModel> load_target(const AnswerPlan& plan) {
  ModelCatalog catalog;
  (void)catalog.read(plan.target);
  ModelOptions options = plan.target_options;
  options.max_length = plan.max_length;
  options.cache.make = [rows = plan.rows](const CacheContext& context) {
    return make_cache(context.layers, {.dtype = context.store.dtype,
                                       .device = context.store.device,
                                       .max_length = context.store.max_length,
                                       .max_rows = rows});
  };
  return ModelLoader(options, &catalog).load(plan.target);
}

/// The model's rows, each with its dialogue; a row whose answer has ended begins the next one.
class AnswerMaker {
 public:
  AnswerMaker(const AnswerPlan& plan, const LogLine& log)
      : plan_(plan),
        log_(log),
        tokenizer_(load_tokenizer(plan.target)),
        loaded_(load_target(plan)),
        model_(*loaded_),
        prompts_(plan, *tokenizer_),
        frame_(frame_of(plan, *tokenizer_)),
        excluded_(excluded_runs(plan, *tokenizer_)),
        writer_(
            plan.out, answer_identity(plan, model_.weights()),
            (static_cast<int64_t>(plan.layers.size()) + 1) * model_.weights().config.hidden_size),
        rows_(static_cast<size_t>(plan.rows)),
        names_{0} {
    while (names_.size() < rows_.size()) {
      names_.push_back(model_.open());
    }
  }

  void run() {
    const c10::InferenceMode inference;
    started_ = std::chrono::steady_clock::now();
    tokens_before_ = writer_.answer_tokens();
    while (refill()) {
      InterruptGuard::check();
      step();
    }
    report();
  }

 private:
  /// False when all rows have ended and no prompt is left.
  bool refill() {
    bool any = false;
    for (size_t row = 0; row < rows_.size(); ++row) {
      while (!rows_[row] && next_ < plan_.prompts) {
        if (writer_.done().count(next_++) == 0) {
          begin(row, next_ - 1);
        }
      }
      any = any || rows_[row];
    }
    return any;
  }

  void begin(size_t row, int64_t number) {
    model_.truncate(0, names_[row]);
    rows_[row].emplace(DialogueRules{plan_, frame_, excluded_, model_.weights().config.end_ids},
                       prompts_.make(number));
    end_if_done(row);
  }

  void step() {
    TokenBatch batch;
    std::vector<Token> tokens;
    std::vector<size_t> fed;
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row]) {
        const TokenSpan next = rows_[row]->next();
        tokens.insert(tokens.end(), next.begin(), next.end());
        batch.rows.insert(batch.rows.end(), next.size(), names_[row]);
        fed.push_back(row);
      }
    }
    batch.tokens = token_tensor(tokens);
    const ForwardResult result = model_.forward(
        batch, {.capture_layers = plan_.layers, .logits = Logits::kLast, .hidden = Hidden::kAll});
    std::vector<at::Tensor> streams = result.captured;
    streams.push_back(result.final_hidden);
    const at::Tensor features = at::cat(streams, -1).cpu();
    int64_t first = 0;
    std::vector<size_t> read;  // of fed: those whose next token is to be chosen
    for (size_t i = 0; i < fed.size(); ++i) {
      const auto count = static_cast<int64_t>(rows_[fed[i]]->next().size());
      model_.commit(chain_path(count), names_[fed[i]]);
      if (rows_[fed[i]]->take(features.narrow(0, first, count))) {
        read.push_back(i);
      }
      first += count;
    }
    at::parallel_for(0, std::ssize(read), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t index = read[static_cast<size_t>(i)];
        rows_[fed[index]]->choose(LogitRow::of(result.logits, static_cast<int64_t>(index)));
      }
    });
    for (const size_t row : fed) {
      end_if_done(row);
    }
  }

  void end_if_done(size_t row) {
    const Dialogue& dialogue = *rows_[row];
    if (dialogue.end() == AnswerEnd::kOpen) {
      return;
    }
    const TokenSpan tokens = dialogue.tokens();
    writer_.add({.number = dialogue.prompt().number,
                 .own = dialogue.prompt().own,
                 .temperature = dialogue.prompt().temperature,
                 .end = answer_end_name(dialogue.end()),
                 .tokens = {tokens.begin(), tokens.end()},
                 .answer = dialogue.answer_begin(),
                 .log_sums = dialogue.log_sums()},
                tokens.empty() ? at::Tensor() : dialogue.features());
    rows_[row].reset();
    if (writer_.done().size() % 50 == 0) {
      report();
    }
  }

  void report() const {
    if (log_) {
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started_;
      log_(fmt::format(
          "{} of {} prompts done: {} tokens of answers, {:.0f} a second", writer_.done().size(),
          plan_.prompts, writer_.answer_tokens(),
          static_cast<double>(writer_.answer_tokens() - tokens_before_) / time.count()));
    }
  }

  const AnswerPlan& plan_;
  const LogLine& log_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TransformerModel> loaded_;
  TransformerModel& model_;
  AnswerPrompts prompts_;
  ChatFrame frame_;
  ExcludedRuns excluded_;
  AnswerWriter writer_;
  std::vector<std::optional<Dialogue>> rows_;
  std::vector<RowId> names_;  // of the model's rows, [rows]
  int64_t next_ = 0;
  int64_t tokens_before_ = 0;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace

void make_answers(const AnswerPlan& plan, const LogLine& log) { AnswerMaker(plan, log).run(); }

}  // namespace specdec
