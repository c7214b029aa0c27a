#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/embeddings/pooling.h"
#include "core/embeddings/sentence_modules.h"
#include "core/embeddings/text_frame.h"
#include "core/kv_store.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/weights.h"

namespace specdec {

/// What embeddings are made with, shared by all models that make them.
struct EmbeddingParts {
  SentenceModules modules;
  TextFrame frame;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TransformerWeights> weights;
};

/// Loads the parts from a checkpoint folder, a folder of sentence-transformers, or a GGUF file.
/// Throws WeightsError naming what is wrong; Error where there is no tokenizer.
EmbeddingParts load_embedding_parts(const std::filesystem::path& model,
                                    const LoadOptions& options = {});

struct EmbeddingOptions {
  /// Poolings to use; empty: as modules.json says; without one `mean` for encoders, `last` for
  /// decoders.
  std::vector<Pooling> pooling = {};
  bool normalize = true;  ///< to length 1 (L2)
  int64_t dimensions =
      0;  ///< cuts embeddings before they are normalised; 0 = modules.json's, or all
  bool truncate = false;       ///< cuts texts that are too long; else they are errors
  bool special = false;        ///< control pieces in a text ("<eos>") are tokens, not text
  int64_t max_length = 0;      ///< tokens of a text; 0 = the model's
  int64_t batch_tokens = 512;  ///< most tokens of a forward of several texts
};

/// Embeddings of texts: hidden states after the final norm, pooled, projected by the folder's dense
/// modules, and normalised. Works with every family of decoders, and with encoders (see Encoder).
/// Not safe for concurrent calls; parts are shared between instances.
///
///   EmbeddingModel model(load_embedding_parts("embeddinggemma"), paged_kv());
///   const std::vector<std::string> texts = {"red", "green"};
///   at::Tensor vectors = model.embed(texts, model.modules().prompt("document"));
class EmbeddingModel {
 public:
  /// Loads the dense modules. Throws ConfigError for options, and WeightsError for modules, that do
  /// not fit the model.
  EmbeddingModel(EmbeddingParts parts, const KvStoreFactory& store,
                 const EmbeddingOptions& options = {});
  ~EmbeddingModel();

  /// The tokens of a text behind a prompt, special ones included. Throws Error for an empty text,
  /// and for one that is too long unless it is to be cut: its last tokens are left out then, but
  /// not the special ones.
  std::vector<Token> encode(const std::string& text, const std::string& prompt = "") const;
  /// A row [dimensions()] float32 for each text, in the host's memory. Throws as encode does. A
  /// row depends, bit for bit, on its text alone.
  Tensor embed(std::span<const std::string> texts, const std::string& prompt = "");
  /// The rows of embed() for texts that encode() has made tokens of, behind the same prompt.
  Tensor embed_tokens(std::span<const std::vector<Token>> texts, const std::string& prompt = "");

  int64_t dimensions() const;
  /// Most tokens of a text, prompt and special tokens included.
  int64_t max_length() const;
  /// The modules as they are applied: with the pooling that the options chose.
  const SentenceModules& modules() const;
  const TransformerWeights& weights() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace specdec
