#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/formats/gguf/gguf.h"
#include "core/types.h"

namespace specdec {

/// Reads what a GGUF file says of its model: the keys `<architecture>.*` of its metadata, and what
/// only its tensors and pieces tell. Complaints are WeightsErrors naming file and key. Borrows the
/// file's content.
class GgufKeys {
 public:
  GgufKeys(const GgufContent& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  const GgufContent& file() const { return file_; }
  const GgufMetadata& metadata() const { return file_.metadata; }
  const std::string& architecture() const { return architecture_; }
  /// The name with the architecture before it, as in the file.
  std::string key(const std::string& name) const { return architecture_ + "." + name; }

  bool has(const char* name) const { return metadata().has(key(name)); }
  int64_t integer(const char* name) const { return metadata().integer(key(name)); }
  int64_t integer(const char* name, int64_t fallback) const {
    return metadata().integer(key(name), fallback);
  }
  double number(const char* name) const { return metadata().number(key(name)); }
  /// The decimal that a float32 of the file was written as: 1e-6, not 9.99999997e-7.
  double decimal(const char* name) const;
  double positive(const char* name) const;
  /// A list with one entry for each layer, or one number for all of them.
  std::vector<int64_t> in_layers(const char* name) const;
  /// The number that in_layers() gives for every layer; throws where they differ.
  int64_t same_in_layers(const char* name) const;
  [[noreturn]] void fail(const char* name, const std::string& problem) const {
    metadata().fail(key(name), problem);
  }

  int64_t layers() const;
  int64_t heads() const { return same_in_layers("attention.head_count"); }
  /// Rows of the embedding.
  int64_t vocabulary() const { return matrix_rows("token_embd.weight"); }
  int64_t matrix_rows(const char* tensor) const;
  /// The tokens that end an answer, named by id or known by their spelling.
  nlohmann::json end_ids() const;
  /// Tokens below `vocab_size` that are never generated (tokenizer.ggml.suppress_tokens).
  std::vector<Token> suppressed_ids(int64_t vocab_size) const;
  /// <bos>; null without one.
  nlohmann::json bos_id() const;

 private:
  /// Null where the key is no list.
  const std::vector<int64_t>* list(const char* name) const;
  bool is_control(int64_t id) const;

  const GgufContent& file_;
  std::string architecture_;
};

}  // namespace specdec
