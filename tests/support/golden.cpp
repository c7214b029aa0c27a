#include "tests/support/golden.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <functional>

namespace specdec {

namespace {

/// A function, since tests are listed before globals of other files exist. Where a program was
/// carried to another machine, tests run in a copy of the tree.
std::filesystem::path source_tree() {
  const std::filesystem::path built = SPECDEC_SOURCE_DIR;
  return std::filesystem::exists(built / "tests" / "data") ? built
                                                           : std::filesystem::current_path();
}

/// Golden sets that are too large for the repository.
std::filesystem::path shared_golden() {
  const char* shared = std::getenv("SPECDEC_SHARED");
  return (shared != nullptr ? std::filesystem::path(shared)
                            : source_tree().parent_path() / "shared") /
         "golden";
}

std::vector<std::string> found(std::vector<std::string> names,
                               const std::function<std::filesystem::path(const std::string&)>& at) {
  std::erase_if(names,
                [&at](const std::string& name) { return !std::filesystem::exists(at(name)); });
  return names;
}

}  // namespace

std::filesystem::path test_data(const std::string& name) {
  const std::filesystem::path own = source_tree() / "tests" / "data" / name;
  const std::filesystem::path shared = shared_golden() / name;
  return !std::filesystem::exists(own) && std::filesystem::exists(shared) ? shared : own;
}

std::filesystem::path golden_gguf(const std::string& name) {
  const std::filesystem::path own = source_tree() / "tests" / "data" / "gguf" / (name + ".gguf");
  const std::string set = name.substr(0, name.rfind('-')) + "-gguf-a";
  const std::filesystem::path shared = shared_golden() / set / (name + ".gguf");
  return !std::filesystem::exists(own) && std::filesystem::exists(shared) ? shared : own;
}

std::vector<std::string> found_golden(const std::vector<std::string>& names) {
  return found(names, test_data);
}

std::vector<std::string> found_golden_gguf(const std::vector<std::string>& names) {
  return found(names, golden_gguf);
}

Golden::Golden(const std::string& name)
    : folder_(test_data(name)), file_(folder_ / "golden.safetensors") {}

Golden::Golden(const std::filesystem::path& file, File /*kind*/)
    : folder_(file.parent_path()), file_(file) {}

at::Tensor Golden::tensor(const std::string& name) const {
  const TensorEntry* entry = file_.find(name);
  TORCH_CHECK(entry != nullptr, "golden set ", folder_.string(), " has no ", name);
  auto* data = const_cast<std::byte*>(entry->bytes.data());
  const auto dtype = entry->dtype == DType::kI64 ? at::kLong : at::kFloat;
  return at::from_blob(data, entry->shape, at::TensorOptions(dtype)).clone();
}

bool Golden::has(const std::string& name) const { return file_.find(name) != nullptr; }

std::vector<Token> Golden::tokens(const std::string& name) const {
  const at::Tensor values = tensor(name).to(at::kInt);
  const Token* data = values.const_data_ptr<Token>();
  return {data, data + values.numel()};
}

std::vector<std::string> gemma_golden_names() {
  std::vector<std::string> names = {"gemma-a", "gemma2-a", "gemma3-a", "gemma3-bf16-sharded-a"};
  const std::vector<std::string> more = found_golden({"gemma3-mm-a"});
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

static std::vector<std::string> gemma4_golden_names() {
  return found_golden(
      {"gemma3n-a", "gemma4-dense-a", "gemma4-e-a", "gemma4-moe-a", "gemma4-unified-a"});
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names = gemma_golden_names();
  names.insert(names.end(), {"llama-a", "mistral-a", "qwen2-a", "qwen3-a"});
  return names;
}

std::vector<std::string> all_golden_names() {
  std::vector<std::string> names = golden_names();
  names.emplace_back("vaultgemma-a");  // beside the others: GGUF has no name for it
  const std::vector<std::string> more = gemma4_golden_names();
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

}  // namespace specdec
