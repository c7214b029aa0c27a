// Ranks texts by their similarity to a query: embed_texts MODEL QUERY TEXT...
#include <ATen/ATen.h>

#include <iostream>
#include <string>
#include <vector>

#include "core/embeddings/embedding_model.h"
#include "core/error.h"
#include "kv/paged_kv.h"

using namespace specdec;

namespace {

void rank(int argc, char** argv) {
  const at::InferenceMode guard;
  EmbeddingModel model(load_embedding_parts(argv[1]), paged_kv());
  const std::vector<std::string> query = {argv[2]};
  const std::vector<std::string> texts(argv + 3, argv + argc);
  const auto& prompts = model.modules().prompts;
  const auto prompt = [&prompts](const char* task) {
    return prompts.count(task) > 0 ? prompts.at(task) : std::string();
  };
  const at::Tensor similarity =
      at::matmul(model.embed(texts, prompt("document")), model.embed(query, prompt("query"))[0]);
  const at::Tensor order = similarity.argsort(0, /*descending=*/true);
  for (int64_t i = 0; i < order.size(0); ++i) {
    const auto text = order[i].item<int64_t>();
    std::cout << similarity[text].item<float>() << "  " << texts[static_cast<size_t>(text)] << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: embed_texts MODEL QUERY TEXT...\n";
    return 2;
  }
  try {
    rank(argc, argv);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
