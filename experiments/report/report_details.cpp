#include "experiments/report/report_details.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "decoders/analysis/quantile.h"
#include "experiments/report/example_choice.h"

namespace specdec {
namespace {

constexpr size_t kTreeNodes = 20;
constexpr size_t kExampleTokens = 160;
constexpr size_t kMaxBranches = 3;  // that are shown of a rejected tree

using PointAndStrategy = std::pair<std::string, std::string>;

PointAndStrategy place_of(const GenerationKey& key) { return {key.sweep_point, key.strategy}; }

int64_t committed_tokens(const Generation& generation) {
  int64_t tokens = 0;
  for (const StepStatistics& step : generation.steps) {
    tokens += step.committed;
  }
  return tokens;
}

const std::string& recorded_question(const GenerationRecord& record) {
  return record.question_id.empty() ? record.key.prompt_id : record.question_id;
}

/// Medians of the forwards by the number of tokens that they verified, where that is known.
std::vector<WidthCost> width_costs(std::span<const GenerationRecord> records) {
  std::map<int64_t, std::vector<double>> seconds;
  for (const GenerationRecord& record : records) {
    for (const StepStatistics& step : record.generation.steps) {
      if (step.verify_seconds > 0.0 && !is_cut(step)) {
        seconds[step.drafted + 1].push_back(step.verify_seconds);
      }
    }
  }
  std::vector<WidthCost> costs;
  for (auto& [width, all] : seconds) {
    if (all.size() >= kMinQuartileValues) {
      std::sort(all.begin(), all.end());
      costs.push_back({.width = width,
                       .steps = static_cast<int64_t>(all.size()),
                       .median = quantile(all, 0.5),
                       .low = quantile(all, 0.25),
                       .high = quantile(all, 0.75)});
    }
  }
  return costs;
}

/// Seconds that the curve gives to a strategy's own steps and to plain decoding of as much text.
struct PredictedSeconds {
  double own = 0.0;
  double plain = 0.0;
};

/// `plain_other`: seconds beside the forward that plain decoding takes for a token.
void predict(const GenerationRecord& record, const CostCurve& curve, double plain_other,
             PredictedSeconds& total) {
  int64_t context = record.prompt_tokens;
  int64_t width = 1;
  for (const StepStatistics& step : record.generation.steps) {
    // A draft that the text's end cuts was as wide as the one before, or wider.
    width = is_cut(step) ? std::max(width, step.drafted + 1) : step.drafted + 1;
    total.own += step.draft_seconds + step.other_seconds + curve.seconds(width, context);
    total.plain += static_cast<double>(step.committed) * (curve.seconds(1, context) + plain_other);
    context += step.committed;
  }
}

/// Median seconds beside the forward that the first strategy's steps without a draft take for a
/// token, by point of the sweep.
std::map<std::string, double> plain_other_seconds(std::span<const GenerationRecord> records) {
  std::map<std::string, std::vector<double>> by_point;
  for (const GenerationRecord& record : records) {
    for (const StepStatistics& step : record.generation.steps) {
      if (record.key.strategy == records.front().key.strategy && step.drafted == 0 &&
          step.committed > 0) {
        by_point[record.key.sweep_point].push_back(step.other_seconds /
                                                   static_cast<double>(step.committed));
      }
    }
  }
  std::map<std::string, double> medians;
  for (auto& [point, seconds] : by_point) {
    std::sort(seconds.begin(), seconds.end());
    medians[point] = quantile(seconds, 0.5);
  }
  return medians;
}

std::vector<SpeedPrediction> predictions(const DetailSources& sources) {
  std::vector<SpeedPrediction> all;
  if (!sources.cost_curve || sources.cost_curve->points.empty() || sources.records.empty()) {
    return all;
  }
  std::map<PointAndStrategy, PredictedSeconds> totals;
  const auto plain_other = plain_other_seconds(sources.records);
  const auto references = reference_points(sources.records, sources.condition_of);
  for (const GenerationRecord& record : sources.records) {
    const auto reference = references.find(record.key.sweep_point);
    if (reference != references.end()) {  // else there is no plain decoding to compare with
      const auto seconds = plain_other.find(reference->second);
      predict(record, *sources.cost_curve, seconds == plain_other.end() ? 0.0 : seconds->second,
              totals[place_of(record.key)]);
    }
  }
  for (const auto& [place, seconds] : totals) {
    if (place.second != sources.records.front().key.strategy && seconds.own > 0.0) {
      all.push_back({place.first, place.second, seconds.plain / seconds.own});
    }
  }
  return all;
}

/// The paths of ranks that a strategy's traces follow, most often followed first.
HitTree hit_tree(const PointAndStrategy& place, const std::vector<const TraceRecord*>& traces) {
  HitTree tree{.sweep_point = place.first, .strategy = place.second, .positions = 0, .nodes = {}};
  std::map<std::vector<int64_t>, int64_t> hits;
  for (const TraceRecord* record : traces) {
    for (const TracePosition& position : record->trace.positions) {
      ++tree.positions;
      std::vector<int64_t> path;
      for (const TraceDepth& depth : position.depths) {
        if (depth.rank < 0 || depth.rank >= record->trace.width) {
          break;
        }
        path.push_back(depth.rank);
        ++hits[path];
      }
    }
  }
  std::vector<std::pair<std::vector<int64_t>, int64_t>> paths(hits.begin(), hits.end());
  // A parent is hit as often as its child at least and its path is shorter: it comes first.
  std::stable_sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first.size() < b.first.size();
  });
  paths.resize(std::min(paths.size(), kTreeNodes));
  std::map<std::vector<int64_t>, int64_t> places;
  for (const auto& [path, count] : paths) {
    const auto parent = places.find({path.begin(), path.end() - 1});
    places[path] = static_cast<int64_t>(tree.nodes.size());
    tree.nodes.push_back({.parent = parent == places.end() ? -1 : parent->second,
                          .rank = path.back(),
                          .depth = static_cast<int64_t>(path.size()),
                          .hits = count});
  }
  return tree;
}

std::vector<HitTree> hit_trees(std::span<const TraceRecord> traces) {
  std::vector<PointAndStrategy> places;
  std::map<PointAndStrategy, std::vector<const TraceRecord*>> by_place;
  for (const TraceRecord& record : traces) {
    auto& own = by_place[place_of(record.key)];
    if (own.empty()) {
      places.push_back(place_of(record.key));
    }
    own.push_back(&record);
  }
  std::vector<HitTree> trees;
  for (const PointAndStrategy& place : places) {
    HitTree tree = hit_tree(place, by_place[place]);
    if (!tree.nodes.empty()) {
      trees.push_back(std::move(tree));
    }
  }
  return trees;
}

AttentionAges attention_ages(std::span<const GenerationRecord> records) {
  AttentionAges shares;
  std::vector<double> nodes;
  for (const GenerationRecord& record : records) {
    if (!record.cache_trace) {
      continue;
    }
    const auto& layers = record.cache_trace->layers;
    if (shares.empty()) {
      shares.resize(layers.size());
      nodes.resize(layers.size());
    }
    if (layers.size() != shares.size()) {
      return {};
    }
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const std::vector<double>& mass = layers[layer].mass;
      shares[layer].resize(std::max(shares[layer].size(), mass.size()));
      std::transform(mass.begin(), mass.end(), shares[layer].begin(), shares[layer].begin(),
                     std::plus<>());
      nodes[layer] += static_cast<double>(layers[layer].nodes);
    }
  }
  for (size_t layer = 0; layer < shares.size(); ++layer) {
    for (double& share : shares[layer]) {
      share /= std::max(1.0, nodes[layer]);
    }
  }
  return shares;
}

/// Writes the pieces of one generation: of each step what was accepted, what was rejected, and the
/// target's own token.
class ExampleWriter {
 public:
  ExampleWriter(const GenerationRecord& record, const Tokenizer* tokenizer)
      : record_(record), tokenizer_(tokenizer) {
    if (tokenizer != nullptr) {
      decoder_.emplace(*tokenizer);
    }
  }

  ExampleText write() {
    const Generation& generation = record_.generation;
    example_ = {.sweep_point = record_.key.sweep_point,
                .strategy = record_.key.strategy,
                .question = record_.key.prompt_id,
                .category = record_.category,
                .steps = static_cast<int64_t>(generation.steps.size()),
                .pieces = {},
                .cut = false};
    take(1, PieceOrigin::kTarget);  // the prefill's
    for (const StepStatistics& step : generation.steps) {
      if (next_ >= kExampleTokens) {
        example_.cut = true;
        break;
      }
      const int64_t accepted = std::min(step.accepted, step.committed);
      take(accepted, PieceOrigin::kAccepted);
      reject(step);
      take(step.committed - accepted, PieceOrigin::kTarget);
    }
    return std::move(example_);
  }

 private:
  void take(int64_t count, PieceOrigin origin) {
    const auto& tokens = record_.generation.tokens;
    for (int64_t i = 0; i < count && next_ < tokens.size(); ++i) {
      const Token token = tokens[next_++];
      example_.pieces.push_back(
          {.text = decoder_ ? decoder_->push(token) : std::to_string(token) + " ",
           .origin = origin});
    }
  }

  /// The branches that were recorded, then how many tokens more were rejected.
  void reject(const StepStatistics& step) {
    int64_t left = step.drafted - step.accepted;
    for (size_t i = 0; i < std::min(step.rejected.size(), kMaxBranches); ++i) {
      const auto& branch = step.rejected[i];
      example_.pieces.push_back({.text = branch_text(branch),
                                 .origin = PieceOrigin::kRejected,
                                 .count = std::ssize(branch)});
      left -= std::ssize(branch);
    }
    if (left > 0) {
      example_.pieces.push_back({.text = "", .origin = PieceOrigin::kRejected, .count = left});
    }
  }

  /// Text of a branch as it would have continued the text so far.
  std::string branch_text(const std::vector<Token>& branch) const {
    std::string text;
    auto decoder = decoder_;
    for (const Token token : branch) {
      text += decoder ? decoder->push(token) : std::to_string(token) + " ";
    }
    return decoder ? text + decoder->finish() : text;
  }

  const GenerationRecord& record_;
  const Tokenizer* tokenizer_;
  std::optional<StreamingDecoder> decoder_;
  ExampleText example_;
  size_t next_ = 0;
};

bool has_drafts(const Generation& generation) {
  return std::any_of(generation.steps.begin(), generation.steps.end(),
                     [](const StepStatistics& step) { return step.drafted > 0; });
}

/// Examples of the strategies that draft, question by question.
std::vector<ExampleText> example_texts(const DetailSources& sources) {
  ExampleChoice choice;
  std::map<std::string, size_t> questions;  // by order of appearance, as the strategies
  std::map<std::string, size_t> strategies;
  std::vector<ExampleText> examples;
  for (const GenerationRecord& record : sources.records) {
    strategies.try_emplace(record.key.strategy, strategies.size());
  }
  for (const GenerationRecord& record :
       sources.as_made.empty() ? sources.records : sources.as_made) {
    const Generation& generation = record.generation;
    // Beam searches commit other numbers of tokens than their steps say.
    if (choice.takes(record.key, record.category) && has_drafts(generation) &&
        committed_tokens(generation) + 1 == static_cast<int64_t>(generation.tokens.size())) {
      questions.try_emplace(record.key.prompt_id, questions.size());
      examples.push_back(ExampleWriter(record, sources.tokenizer).write());
    }
  }
  const auto place = [&](const ExampleText& example) {
    return std::pair(questions.at(example.question), strategies.at(example.strategy));
  };
  std::stable_sort(examples.begin(), examples.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return examples;
}

}  // namespace

std::optional<double> QuestionResult::tokens_per_second() const {
  return tokens > 0 && seconds > 0.0 ? std::optional(static_cast<double>(tokens) / seconds)
                                     : std::nullopt;
}

std::vector<QuestionResult> question_results(std::span<const GenerationRecord> records,
                                             const ConditionOf& condition_of) {
  std::vector<QuestionResult> results;
  std::map<std::pair<PointAndStrategy, std::string>, size_t> places;
  for (const GenerationRecord& record : records) {
    const auto [place, is_new] =
        places.try_emplace({place_of(record.key), recorded_question(record)}, results.size());
    if (is_new) {
      results.push_back({.sweep_point = record.key.sweep_point,
                         .strategy = record.key.strategy,
                         .question = recorded_question(record),
                         .category = record.category});
    }
    QuestionResult& result = results[place->second];
    result.tokens += committed_tokens(record.generation);
    result.steps += static_cast<int64_t>(record.generation.steps.size());
    result.seconds += record.generation.decode_seconds;
  }
  const auto references = reference_points(records, condition_of);
  std::map<std::string, size_t> questions;  // by order of appearance
  for (QuestionResult& result : results) {
    questions.try_emplace(result.question, questions.size());
    const std::string& first = results.front().strategy;
    const auto point = references.find(result.sweep_point);
    if (result.strategy == first || point == references.end()) {
      continue;
    }
    const auto base = places.find({{point->second, first}, result.question});
    const auto own = result.tokens_per_second();
    const auto reference =
        base == places.end() ? std::nullopt : results[base->second].tokens_per_second();
    if (own && reference) {
      result.speedup = *own / *reference;
    }
  }
  std::stable_sort(results.begin(), results.end(), [&](const auto& a, const auto& b) {
    return questions.at(a.question) < questions.at(b.question);
  });
  return results;
}

ReportDetails collect_details(const DetailSources& sources) {
  return {.questions = question_results(sources.records, sources.condition_of),
          .cost_curve = sources.cost_curve ? sources.cost_curve->points : std::vector<CostPoint>(),
          .widths = width_costs(sources.records),
          .predictions = predictions(sources),
          .trees = hit_trees(sources.traces),
          .examples = example_texts(sources),
          .attention_ages = attention_ages(sources.records)};
}

}  // namespace specdec
