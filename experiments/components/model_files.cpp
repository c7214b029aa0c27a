#include "experiments/components/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/families/limited_model.h"
#include "core/families/model_size.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/tokenizer_files.h"

namespace specdec {
namespace {

/// nullptr when there is none.
std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& folder, const GgufFile* gguf,
                                          std::vector<std::string>& notes) {
  if (gguf != nullptr) {
    return has_tokenizer(gguf->metadata()) ? gguf_tokenizer(gguf->metadata()) : nullptr;
  }
  const auto file = tokenizer_file(folder);
  return file.empty() ? nullptr : load_tokenizer(file, &notes);
}

/// Texts end with the tokenizer's <eos> too where a folder's configs name others, as with GGUF
/// files, which name it first.
void add_tokenizers_end(const Tokenizer& tokenizer, TransformerConfig& config,
                        std::vector<std::string>& notes) {
  const auto end = tokenizer.eos();
  auto& ends = config.end_ids;
  if (!end || std::find(ends.begin(), ends.end(), *end) != ends.end()) {
    return;
  }
  notes.push_back(
      fmt::format("the tokenizer's <eos> is {} ({}), but config.json and generation_config.json "
                  "name {}: a text ends with any of them.",
                  *end, tokenizer.piece(*end),
                  ends.empty() ? "none" : fmt::format("{}", fmt::join(ends, ", "))));
  ends.push_back(*end);
}

}  // namespace

ModelFiles read_model_files(const std::filesystem::path& folder) {
  const auto open = std::make_shared<OpenModel>(open_model(folder));
  ModelFiles files{folder, open->description.config, open->description.plan, nullptr, open};
  files.notes = open->notes;
  try {
    files.tokenizer = read_tokenizer(folder, open->gguf.get(), files.notes);
  } catch (const Error& error) {
    files.tokenizer_error = error.what();
  }
  (void)measure_weights(*open);  // their names, shapes and dtypes
  if (files.tokenizer != nullptr) {
    add_tokenizers_end(*files.tokenizer, open->description.config, files.notes);
    files.config = open->description.config;
  }
  if (files.tokenizer != nullptr) {
    if (files.tokenizer->vocab_size() > files.config.vocab_size) {
      throw WeightsError(fmt::format(
          "{}: the tokenizer has {} pieces, but the model's vocabulary only {}; it belongs to "
          "another model",
          folder.string(), files.tokenizer->vocab_size(), files.config.vocab_size));
    }
  }
  if (const auto& suppressed = files.config.suppressed_ids; !suppressed.empty()) {
    constexpr size_t kShown = 8;
    const auto count = static_cast<int64_t>(std::min(kShown, suppressed.size()));
    files.notes.push_back(fmt::format(
        "the checkpoint's suppress_tokens are never generated: {} ({}{}).", suppressed.size(),
        fmt::join(suppressed.begin(), suppressed.begin() + count, ", "),
        suppressed.size() > kShown ? ", ..." : ""));
  }
  return files;
}

void print_notes(const ModelFiles& files, std::ostream& err) {
  for (const std::string& note : files.notes) {
    err << fmt::format("{}: note: {}\n", files.folder.string(), note);
  }
}

const ModelFiles* ModelCatalog::find(const std::filesystem::path& folder) const {
  const auto found = files_.find(folder.string());
  return found == files_.end() ? nullptr : &found->second;
}

const ModelFiles& ModelCatalog::read(const std::filesystem::path& folder) {
  const auto found = files_.find(folder.string());
  if (found != files_.end()) {
    return found->second;
  }
  return files_.emplace(folder.string(), read_model_files(folder)).first->second;
}

const ModelFiles& ModelCatalog::read(const std::filesystem::path& folder, int64_t active_layers) {
  const ModelFiles& whole = read(folder);
  check_active_layers(active_layers, whole.config.num_layers);
  if (active_layers == 0 || active_layers == whole.config.num_layers) {
    return whole;
  }
  ModelFiles first = whole;
  first.config.num_layers = active_layers;
  first.plan.resize(static_cast<size_t>(active_layers));
  return files_.emplace(fmt::format("{}|{}", folder.string(), active_layers), std::move(first))
      .first->second;
}

std::string vocabulary_mismatch(const ModelFiles& target, const ModelFiles& draft) {
  std::string reason;
  if (target.tokenizer != nullptr && draft.tokenizer != nullptr) {
    return same_vocabulary(*target.tokenizer, *draft.tokenizer, reason)
               ? ""
               : "draft and target have different vocabularies: " + reason;
  }
  if (target.config.vocab_size != draft.config.vocab_size) {
    return fmt::format("the draft model's vocabulary has {} entries, the target's {}",
                       draft.config.vocab_size, target.config.vocab_size);
  }
  return "";
}

}  // namespace specdec
