#include "tests/experiments/run/text_model.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

constexpr int64_t kVocabSize = 600;

std::vector<std::byte> repeat_rows(const TensorEntry& entry) {
  const auto row_bytes = static_cast<int64_t>(entry.bytes.size()) / entry.shape[0];
  std::vector<std::byte> bytes(static_cast<size_t>(kVocabSize * row_bytes));
  for (int64_t row = 0; row < kVocabSize; ++row) {
    const auto source = entry.bytes.subspan(static_cast<size_t>(row % entry.shape[0] * row_bytes),
                                            static_cast<size_t>(row_bytes));
    std::copy(source.begin(), source.end(), bytes.begin() + row * row_bytes);
  }
  return bytes;
}

}  // namespace

void write_text_model(const std::filesystem::path& folder) {
  const auto source = test_data("gemma3-a");
  std::filesystem::create_directories(folder);
  std::filesystem::copy(test_data("tokenizer") / "tokenizer.model", folder / "tokenizer.model");
  std::stringstream config;
  config << std::ifstream(source / "config.json").rdbuf();
  std::string text = config.str();
  const std::string old_size = "\"vocab_size\": 512";
  text.replace(text.find(old_size), old_size.size(), "\"vocab_size\": 600");
  std::ofstream(folder / "config.json") << text;

  const SafetensorsFile file(source / "model.safetensors");
  std::vector<std::byte> embedding;
  std::vector<TensorToWrite> tensors;
  for (const auto& entry : file.tensors()) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
    if (entry.name == "model.embed_tokens.weight") {
      embedding = repeat_rows(entry);
      tensors.back().shape[0] = kVocabSize;
      tensors.back().bytes = embedding;
    }
  }
  write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace specdec
