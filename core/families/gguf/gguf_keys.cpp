#include "core/families/gguf/gguf_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/sentencepiece_model.h"

namespace specdec {

using nlohmann::json;

double GgufKeys::decimal(const char* name) const {
  const double value = number(name);
  const auto single = static_cast<float>(value);
  return static_cast<double>(single) == value
             ? std::strtod(fmt::format("{}", single).c_str(), nullptr)
             : value;
}

double GgufKeys::positive(const char* name) const {
  const double value = number(name);
  if (!(value > 0.0)) {
    fail(name, fmt::format("should be positive, but is {}", value));
  }
  return value;
}

int64_t GgufKeys::layers() const {
  constexpr const char* kName = "block_count";
  constexpr int64_t kMaxLayers = 1 << 16;
  const int64_t count = integer(kName);
  if (count < 1 || count > kMaxLayers) {
    fail(kName, fmt::format("is {}, but should be 1 to {}", count, kMaxLayers));
  }
  return count;
}

const std::vector<int64_t>* GgufKeys::list(const char* name) const {
  const auto& values = metadata().values();
  const auto found = values.find(key(name));
  const auto* all =
      found == values.end() ? nullptr : std::get_if<std::vector<int64_t>>(&found->second);
  if (all != nullptr && (all->empty() || std::ssize(*all) != layers())) {
    fail(name, fmt::format("has {} entries for {} layers", all->size(), layers()));
  }
  return all;
}

std::vector<int64_t> GgufKeys::in_layers(const char* name) const {
  if (const std::vector<int64_t>* all = list(name)) {
    return *all;
  }
  return std::vector<int64_t>(static_cast<size_t>(layers()), integer(name));
}

int64_t GgufKeys::same_in_layers(const char* name) const {
  const std::vector<int64_t>* all = list(name);
  if (all == nullptr) {
    return integer(name);
  }
  const auto other = std::adjacent_find(all->begin(), all->end(), std::not_equal_to<>());
  if (other != all->end()) {
    fail(name, fmt::format("differs between layers ({} and {}), which is not supported", *other,
                           *std::next(other)));
  }
  return all->front();
}

int64_t GgufKeys::matrix_rows(const char* tensor) const {
  const TensorEntry* entry = file_.find(tensor);
  if (entry == nullptr || entry->shape.size() != 2) {
    throw WeightsError(
        fmt::format("{}: tensor '{}' is missing or no matrix.", metadata().where(), tensor));
  }
  return entry->shape[0];
}

json GgufKeys::end_ids() const {
  std::vector<int64_t> ids;
  const auto add = [&ids](int64_t id) {
    if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) {
      ids.push_back(id);
    }
  };
  for (const char* name : {"eos", "eot", "eom"}) {
    add(metadata().integer(fmt::format("tokenizer.ggml.{}_token_id", name), -1));
  }
  if (metadata().has("tokenizer.ggml.tokens")) {
    const auto& tokens = metadata().texts("tokenizer.ggml.tokens");
    const auto find = [&tokens](const char* piece) -> int64_t {
      const auto found = std::find(tokens.begin(), tokens.end(), piece);
      return found == tokens.end() ? -1 : found - tokens.begin();
    };
    for (const char* piece : {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",
                              "<|eom_id|>", "<end_of_turn>", "<turn|>", "<|tool_response>"}) {
      add(find(piece));
    }
    if (const int64_t id = find("</s>"); is_control(id)) {  // in Gemma it is HTML
      add(id);
    }
  }
  return ids;
}

std::vector<Token> GgufKeys::suppressed_ids(int64_t vocab_size) const {
  const char* key = "tokenizer.ggml.suppress_tokens";
  std::vector<Token> ids;
  if (metadata().has(key)) {
    for (const int64_t id : metadata().integers(key)) {
      if (id >= 0 && id < vocab_size) {
        ids.push_back(static_cast<Token>(id));
      }
    }
  }
  return ids;
}

json GgufKeys::bos_id() const {
  const int64_t bos = metadata().integer("tokenizer.ggml.bos_token_id", -1);
  return bos >= 0 ? json(bos) : json();
}

bool GgufKeys::is_control(int64_t id) const {
  const std::string name = "tokenizer.ggml.token_type";
  if (id < 0 || !metadata().has(name)) {
    return false;
  }
  const auto& types = metadata().integers(name);
  return id < std::ssize(types) &&
         types[static_cast<size_t>(id)] == static_cast<int64_t>(PieceType::kControl);
}

}  // namespace specdec
