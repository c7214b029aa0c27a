#include "core/embeddings/embedding_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/embeddings/dense_layers.h"
#include "core/error.h"
#include "core/families/model.h"
#include "core/open_row.h"
#include "core/tokenizers/special_encoder.h"
#include "core/transformer/encoder.h"
#include "core/transformer/transformer_model.h"

namespace specdec {
namespace {

/// The modules with what the options and the model's kind decide.
SentenceModules chosen_modules(SentenceModules modules, const EmbeddingOptions& options,
                               const TransformerConfig& config) {
  if (!options.pooling.empty()) {
    modules.pooling = options.pooling;
  } else if (modules.pooling.empty()) {
    modules.pooling = {config.bidirectional ? Pooling::kMean : Pooling::kLast};
  }
  return modules;
}

/// Texts of a forward: neighbours, together at most `most` tokens, or one longer text.
size_t count_together(std::span<const std::vector<Token>> texts, int64_t most) {
  auto tokens = std::ssize(texts.front());
  size_t count = 1;
  while (count < texts.size() && tokens + std::ssize(texts[count]) <= most) {
    tokens += std::ssize(texts[count++]);
  }
  return count;
}

TokenBatch batch_of_texts(std::span<const std::vector<Token>> texts) {
  TokenBatch batch;
  std::vector<Token> tokens;
  for (size_t row = 0; row < texts.size(); ++row) {
    tokens.insert(tokens.end(), texts[row].begin(), texts[row].end());
    batch.rows.insert(batch.rows.end(), texts[row].size(), static_cast<int64_t>(row));
  }
  batch.tokens = token_tensor(tokens);
  return batch;
}

}  // namespace

class EmbeddingModel::Impl {
 public:
  Impl(EmbeddingParts parts, const KvStoreFactory& store, const EmbeddingOptions& options)
      : parts_(std::move(parts)),
        options_(options),
        modules_(chosen_modules(parts_.modules, options, parts_.weights->config)),
        dense_(modules_.dense, pooled_width(), parts_.weights->compute_dtype()) {
    const TransformerOptions own{.max_length = options.max_length};
    if (parts_.weights->config.bidirectional) {
      encoder_.emplace(parts_.weights, store, own);
    } else {
      decoder_.emplace(parts_.weights, store, own);
    }
    if (options_.special) {
      special_.emplace(*parts_.tokenizer);
    }
    check_options();
  }

  std::vector<Token> encode(const std::string& text, const std::string& prompt) const {
    if (text.empty()) {
      throw Error("the text is empty: there is nothing to embed");
    }
    std::vector<Token> own = tokens_of(prompt + text);
    const auto room = static_cast<size_t>(max_length() - parts_.frame.size());
    if (own.size() > room) {
      if (!options_.truncate) {
        throw Error(fmt::format(
            "the text has {} tokens, prompt and special tokens included, but the model takes at "
            "most {}: shorten it, or have it cut (--truncate)",
            static_cast<int64_t>(own.size()) + parts_.frame.size(), max_length()));
      }
      own.resize(room);
    }
    own.insert(own.begin(), parts_.frame.before.begin(), parts_.frame.before.end());
    own.insert(own.end(), parts_.frame.after.begin(), parts_.frame.after.end());
    if (own.empty()) {
      throw Error("the text has no tokens: the vocabulary has no symbols for its bytes");
    }
    return own;
  }

  Tensor embed_tokens(std::span<const std::vector<Token>> texts, const std::string& prompt) {
    const int64_t skipped = skipped_tokens(prompt);
    std::vector<Tensor> pooled;
    while (!texts.empty()) {
      const auto together = texts.first(count_together(texts, options_.batch_tokens));
      const Tensor states = hidden_states(together);
      int64_t begin = 0;
      for (const std::vector<Token>& text : together) {
        pooled.push_back(pool(states.narrow(0, begin, std::ssize(text)), skipped));
        begin += std::ssize(text);
      }
      texts = texts.subspan(together.size());
    }
    return pooled.empty() ? at::empty({0, dimensions()}) : finish(pooled);
  }

  int64_t dimensions() const {
    const int64_t wanted = options_.dimensions > 0 ? options_.dimensions : modules_.dimensions;
    return wanted > 0 ? std::min(wanted, dense_.out()) : dense_.out();
  }
  int64_t max_length() const {
    return std::min(encoder_ ? encoder_->max_length() : decoder_->max_length(),
                    modules_.max_length);
  }
  const SentenceModules& modules() const { return modules_; }
  const TransformerWeights& weights() const { return *parts_.weights; }

 private:
  int64_t pooled_width() const {
    return parts_.weights->config.hidden_size * std::ssize(modules_.pooling);
  }

  void check_options() const {
    if (options_.dimensions > dense_.out()) {
      throw ConfigError(fmt::format("{} dimensions were asked for, but embeddings have {}",
                                    options_.dimensions, dense_.out()));
    }
    if (max_length() <= parts_.frame.size()) {
      throw ConfigError(
          fmt::format("a text may have {} tokens, but {} of them are special ones; allow more",
                      max_length(), parts_.frame.size()));
    }
  }

  std::vector<Token> tokens_of(const std::string& text) const {
    return special_ ? special_->encode(text) : parts_.tokenizer->encode(text);
  }

  /// Tokens at the beginning of a text that are not pooled.
  int64_t skipped_tokens(const std::string& prompt) const {
    return modules_.pools_prompt || prompt.empty()
               ? 0
               : std::ssize(parts_.frame.before) + std::ssize(tokens_of(prompt));
  }

  /// [n, hidden] of all tokens of the texts.
  Tensor hidden_states(std::span<const std::vector<Token>> texts) {
    if (encoder_) {
      return encoder_->forward(batch_of_texts(texts));
    }
    const ForwardOptions all{.logits = Logits::kNone, .hidden = Hidden::kAll};
    if (texts.size() == 1) {  // in pieces, if it is long
      return decoder_->prefill(texts.front(), all).final_hidden;
    }
    TokenBatch batch = batch_of_texts(texts);
    std::vector<OpenRow> rows;
    while (rows.size() < texts.size()) {
      rows.emplace_back(*decoder_);
    }
    for (RowId& row : batch.rows) {
      row = rows[static_cast<size_t>(row)].name();
    }
    return decoder_->forward(batch, all).final_hidden;
  }

  Tensor pool(const Tensor& states, int64_t skipped) const {
    std::vector<Tensor> vectors;
    for (const Pooling pooling : modules_.pooling) {
      vectors.push_back(pool_states(states, pooling, std::min(skipped, states.size(0) - 1)));
    }
    return at::cat(vectors);
  }

  /// A row at a time, so that its bits do not depend on the others.
  Tensor finish(const std::vector<Tensor>& pooled) const {
    std::vector<Tensor> rows;
    for (const Tensor& vector : pooled) {
      Tensor row = dense_.apply(vector.unsqueeze(0)).narrow(1, 0, dimensions());
      if (options_.normalize) {
        row = row / row.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12);
      }
      rows.push_back(row.to(at::kFloat));
    }
    return at::cat(rows);
  }

  EmbeddingParts parts_;
  EmbeddingOptions options_;
  SentenceModules modules_;
  DenseLayers dense_;
  std::optional<Encoder> encoder_;
  std::optional<TransformerModel> decoder_;
  std::optional<SpecialEncoder> special_;
};

EmbeddingParts load_embedding_parts(const std::filesystem::path& model,
                                    const LoadOptions& options) {
  EmbeddingParts parts;
  parts.modules = read_sentence_modules(model);
  const OpenModel open = open_model(parts.modules.model);
  parts.tokenizer = load_tokenizer(parts.modules.model);
  parts.frame = open.gguf != nullptr ? read_text_frame(open.gguf->metadata(), *parts.tokenizer)
                                     : read_text_frame(parts.modules.model, *parts.tokenizer);
  parts.weights = load_model(open, options);
  return parts;
}

EmbeddingModel::EmbeddingModel(EmbeddingParts parts, const KvStoreFactory& store,
                               const EmbeddingOptions& options) {
  SPECDEC_CHECK(parts.weights != nullptr && parts.tokenizer != nullptr,
                "embeddings need weights and a tokenizer");
  impl_ = std::make_unique<Impl>(std::move(parts), store, options);
}

EmbeddingModel::~EmbeddingModel() = default;

std::vector<Token> EmbeddingModel::encode(const std::string& text,
                                          const std::string& prompt) const {
  return impl_->encode(text, prompt);
}

Tensor EmbeddingModel::embed(std::span<const std::string> texts, const std::string& prompt) {
  std::vector<std::vector<Token>> tokens;
  for (const std::string& text : texts) {
    tokens.push_back(impl_->encode(text, prompt));
  }
  return impl_->embed_tokens(tokens, prompt);
}

Tensor EmbeddingModel::embed_tokens(std::span<const std::vector<Token>> texts,
                                    const std::string& prompt) {
  return impl_->embed_tokens(texts, prompt);
}

int64_t EmbeddingModel::dimensions() const { return impl_->dimensions(); }
int64_t EmbeddingModel::max_length() const { return impl_->max_length(); }
const SentenceModules& EmbeddingModel::modules() const { return impl_->modules(); }
const TransformerWeights& EmbeddingModel::weights() const { return impl_->weights(); }

}  // namespace specdec
