#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>

#include "core/embeddings/embedding_model.h"
#include "core/error.h"
#include "core/formats/finite_values.h"
#include "core/formats/json_text.h"
#include "core/formats/safetensors.h"
#include "core/hub_cache.h"
#include "core/transformer/adapters/lora_adapter.h"
#include "core/transformer/adapters/merge.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/replaced_file.h"
#include "experiments/cli/text_line.h"
#include "experiments/config/config_file.h"
#include "experiments/config/output_path.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

struct EmbedArguments {
  std::string model, file, out, pooling, task, prompt;
  std::vector<std::string> texts, adapters;
  bool has_prompt = false;
  bool json_lines = false;
  bool no_normalize = false;
  bool truncate = false;
  bool special = false;
  int64_t dimensions = 0;
  int64_t batch_tokens = 512;
};

/// A text, with the id of its line if that has one, and what messages call it.
struct TextToEmbed {
  std::string text;
  nlohmann::json id;
  std::string where;
};

std::vector<TextToEmbed> read_lines(std::istream& lines, const std::string& name, bool json_lines) {
  std::vector<TextToEmbed> texts;
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const std::string where = fmt::format("{}:{}", name, number);
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    if (!json_lines) {
      texts.push_back({line, {}, where});
    } else if (line.find_first_not_of(" \t") != std::string::npos) {
      const nlohmann::json value = parse_text_line(line, where);
      texts.push_back(
          {value["text"].get<std::string>(), value.value("id", nlohmann::json()), where});
    }
  }
  if (texts.empty()) {
    throw ConfigError(fmt::format("{}: holds no texts", name));
  }
  return texts;
}

std::vector<TextToEmbed> read_texts(const EmbedArguments& arguments) {
  if (arguments.texts.empty() == arguments.file.empty()) {
    throw ConfigError(
        "embed needs texts: as arguments after the model, or by --file FILE (or - for standard "
        "input), not both");
  }
  std::vector<TextToEmbed> texts;
  for (const std::string& text : arguments.texts) {
    texts.push_back({text, {}, fmt::format("text {}", texts.size() + 1)});
  }
  if (arguments.file == "-") {
    return read_lines(std::cin, "<stdin>", arguments.json_lines);
  }
  if (!arguments.file.empty()) {
    std::istringstream lines(read_text_file(arguments.file));
    const bool named = std::filesystem::path(arguments.file).extension() == ".jsonl";
    return read_lines(lines, arguments.file, named || arguments.json_lines);
  }
  return texts;
}

/// What --out names, known before anything is computed.
enum class EmbeddingOutput { kLines, kSafetensors };

EmbeddingOutput output_kind(const std::string& out) {
  const auto extension = std::filesystem::path(out).extension();
  require_config(out.empty() || extension == ".safetensors" || extension == ".jsonl",
                 fmt::format("--out '{}': should end in .safetensors or .jsonl", out));
  require_config(
      out.empty() || std::filesystem::is_directory(std::filesystem::absolute(out).parent_path()),
      fmt::format("--out '{}': its folder does not exist", out));
  if (const std::string why = refused_output(out); !out.empty() && !why.empty()) {
    throw ConfigError("--out: " + why);
  }
  const bool is_tensor = extension == ".safetensors";
  keep_other_file("--out", out, "embeddings", [&] {
    return is_tensor ? holds_tensor(out, "embeddings") : begins_with(out, "{\"index\":");
  });
  return is_tensor ? EmbeddingOutput::kSafetensors : EmbeddingOutput::kLines;
}

std::string choose_prompt(const EmbedArguments& arguments, const SentenceModules& modules) {
  require_config(arguments.task.empty() || !arguments.has_prompt,
                 "--task and --prompt both name a prompt; give one");
  if (arguments.has_prompt) {
    return arguments.prompt;
  }
  const std::string task =
      arguments.task.empty() ? modules.default_task.value_or("") : arguments.task;
  return task.empty() ? "" : modules.prompt(task);
}

/// The model's weights with the adapters merged into them: encoders apply none beside theirs.
std::shared_ptr<const TransformerWeights> merged_weights(
    std::shared_ptr<const TransformerWeights> base, const std::vector<AdapterChoice>& adapters) {
  if (adapters.empty()) {
    return base;
  }
  AdapterStack stack(base);
  for (const AdapterChoice& adapter : adapters) {
    stack.push({load_lora(adapter.path, base), adapter.scale});
  }
  return merge_adapters(stack);
}

EmbeddingParts prepare_parts(SentenceModules modules, const ModelFiles& files, ModelLoader& loader,
                             const std::vector<AdapterChoice>& adapters) {
  if (files.tokenizer == nullptr) {
    throw ConfigError(files.no_text(
        fmt::format("{} has no tokenizer (tokenizer.model or tokenizer.json), so it reads no texts",
                    files.folder.string())));
  }
  const auto& gguf = files.open->gguf;
  TextFrame frame = gguf != nullptr ? read_text_frame(gguf->metadata(), *files.tokenizer)
                                    : read_text_frame(files.folder, *files.tokenizer);
  return {.modules = std::move(modules),
          .frame = std::move(frame),
          .tokenizer = files.tokenizer,
          .weights = merged_weights(loader.weights(files.folder), adapters)};
}

std::vector<std::vector<Token>> encode_texts(const EmbeddingModel& model,
                                             const std::vector<TextToEmbed>& texts,
                                             const std::string& prompt) {
  std::vector<std::vector<Token>> all;
  for (const TextToEmbed& text : texts) {
    require_utf8(text.text, text.where);
    try {
      all.push_back(model.encode(text.text, prompt));
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", text.where, error.what()));
    }
  }
  return all;
}

/// Rows of the texts from `first` on are numbers.
void check_rows(const Tensor& rows, const std::vector<TextToEmbed>& texts, size_t first) {
  const auto* bytes = static_cast<const std::byte*>(rows.const_data_ptr());
  if (const auto found =
          first_not_finite(DType::kF32, {bytes, static_cast<size_t>(rows.nbytes())})) {
    throw Error(fmt::format(
        "{}: its embedding holds {}: the model's numbers are too large for its dtype. Try --dtype "
        "float32 or float64",
        texts[first + static_cast<size_t>(found->value / rows.size(1))].where,
        found->is_nan ? "NaN" : "infinity"));
  }
}

/// Numbers have as many digits as tell them from other float32 ones.
std::string row_line(size_t index, const TextToEmbed& text, size_t tokens, const Tensor& row) {
  std::string line = fmt::format("{{\"index\":{},", index);
  if (!text.id.is_null()) {
    line += fmt::format("\"id\":{},", json_text(text.id));
  }
  line += fmt::format("\"tokens\":{},\"embedding\":[", tokens);
  const auto* values = row.const_data_ptr<float>();
  for (int64_t i = 0; i < row.size(0); ++i) {
    line += fmt::format("{}{}", i == 0 ? "" : ",", values[i]);
  }
  return line + "]}\n";
}

std::string pooling_text(const SentenceModules& modules) {
  std::string text;
  for (const Pooling pooling : modules.pooling) {
    text += (text.empty() ? "" : ", ") + pooling_name(pooling);
  }
  return text;
}

void write_tensor(const EmbedArguments& arguments, const EmbeddingModel& model,
                  const std::string& prompt, const Tensor& rows) {
  const auto* data = static_cast<const std::byte*>(rows.const_data_ptr());
  const TensorToWrite tensor{
      "embeddings", DType::kF32, rows.sizes().vec(), {data, static_cast<size_t>(rows.nbytes())}};
  write_safetensors(arguments.out, {&tensor, 1},
                    {{"fingerprint", model.weights().fingerprint},
                     {"pooling", pooling_text(model.modules())},
                     {"normalized", arguments.no_normalize ? "false" : "true"},
                     {"prompt", prompt}});
}

/// Embeds all texts, some at a time; gives each group's rows to `use` with the first one's number.
template <class Use>
void embed_all(const CommandContext& context, EmbeddingModel& model,
               std::span<const std::vector<Token>> tokens, const std::string& prompt,
               const Use& use) {
  constexpr size_t kGroup = 32;
  const InterruptGuard interrupts;
  Progress progress(context.err, Progress::choose_style(context.flags.quiet),
                    static_cast<int64_t>((tokens.size() + kGroup - 1) / kGroup), "groups");
  for (size_t first = 0; first < tokens.size(); first += kGroup) {
    InterruptGuard::check();
    const size_t count = std::min(kGroup, tokens.size() - first);
    use(first, model.embed_tokens(tokens.subspan(first, count), prompt));
    if (tokens.size() > kGroup) {
      progress.advance("embedding");
    }
  }
}

EmbeddingOptions embedding_options(const EmbedArguments& arguments) {
  EmbeddingOptions options{.normalize = !arguments.no_normalize,
                           .dimensions = arguments.dimensions,
                           .truncate = arguments.truncate,
                           .special = arguments.special,
                           .batch_tokens = arguments.batch_tokens};
  if (!arguments.pooling.empty()) {
    options.pooling = {parse_pooling(arguments.pooling)};
  }
  return options;
}

int embed(const CommandContext& context, const EmbedArguments& arguments) {
  const EmbeddingOutput kind = output_kind(arguments.out);
  const std::vector<TextToEmbed> texts = read_texts(arguments);
  EmbeddingOptions options = embedding_options(arguments);
  SentenceModules modules = read_sentence_modules(arguments.model);
  const std::string prompt = choose_prompt(arguments, modules);
  ModelCatalog catalog;
  const ModelFiles& files = catalog.read(modules.model);
  ModelLoader loader(context.model_options(), &catalog);
  options.max_length = max_length_of(loader.options(), files.config);
  EmbeddingModel model(
      prepare_parts(std::move(modules), files, loader, parse_adapters(arguments.adapters)),
      loader.kv_store(), options);
  const auto tokens = encode_texts(model, texts, prompt);
  const c10::InferenceMode guard;
  std::vector<Tensor> all;
  std::string lines;
  embed_all(context, model, tokens, prompt, [&](size_t first, const Tensor& rows) {
    check_rows(rows, texts, first);
    if (kind == EmbeddingOutput::kSafetensors) {
      all.push_back(rows);
      return;
    }
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const size_t index = first + static_cast<size_t>(i);
      const std::string line = row_line(index, texts[index], tokens[index].size(), rows[i]);
      arguments.out.empty() ? void(context.out << line) : void(lines += line);
    }
  });
  if (kind == EmbeddingOutput::kSafetensors) {
    write_tensor(arguments, model, prompt, at::cat(all));
  } else if (!arguments.out.empty()) {
    write_text_file(arguments.out, lines);
  }
  if (!context.flags.quiet && !arguments.out.empty()) {
    context.err << fmt::format("{}: embeddings [{}, {}], pooling {}\n", arguments.out, texts.size(),
                               model.dimensions(), pooling_text(model.modules()));
  }
  return 0;
}

void add_embed_options(CLI::App& command, EmbedArguments& arguments) {
  command
      .add_option("MODEL", arguments.model,
                  kModelHelp + std::string("; or a folder of sentence-transformers"))
      ->required();
  command.add_option("TEXT", arguments.texts, "texts to embed");
  add_adapter_option(command, arguments.adapters);
  command.add_option("--file", arguments.file,
                     "a file of texts, one a line, or - for standard input; .jsonl: lines "
                     "{\"text\": ...}, with an \"id\" or not");
  command.add_flag("--jsonl", arguments.json_lines, "lines of --file are JSON whatever its name");
  command.add_option("--out", arguments.out,
                     "a .safetensors file (`embeddings` [texts, dimensions]) or a .jsonl file, "
                     "overwritten; default: JSON lines on standard output");
  command.add_option("--pooling", arguments.pooling,
                     "last, mean, max, cls, mean_sqrt_len_tokens or weightedmean (default: that "
                     "of modules.json; else mean for encoders, last for decoders)");
  command.add_flag("--no-normalize", arguments.no_normalize, "leave the vectors' lengths");
  command
      .add_option("--dimensions", arguments.dimensions,
                  "keep the first so many numbers of each vector (Matryoshka embeddings)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24U));
  command.add_option("--task", arguments.task,
                     "put the model's prompt of this name before texts (query, document, ...)");
  command.add_flag("--truncate", arguments.truncate, "cut texts that are too long for the model");
  command.add_flag("--special", arguments.special,
                   "control pieces in the texts (\"<eos>\") stand for themselves");
  command
      .add_option("--batch-tokens", arguments.batch_tokens,
                  "most tokens of a forward of several texts; changes no bits of the results")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24U));
}

}  // namespace

void add_embed_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("embed", "turn texts into vectors");
  const auto arguments = std::make_shared<EmbedArguments>();
  add_embed_options(*command, *arguments);
  const auto* prompt =
      command->add_option("--prompt", arguments->prompt, "put this text before texts");
  command->footer(
      "Hidden states after the final norm are pooled, projected by the folder's dense modules and "
      "divided by\n"
      "their length (L2). Examples:\n"
      "  specdec embed models/target 'Fellow citizens' 'The people'\n"
      "  specdec embed embeddinggemma-300m --task query --file questions.txt --out q.safetensors");
  command->callback([&context, arguments, prompt] {
    arguments->has_prompt = prompt->count() > 0;
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      return embed(context, *arguments);
    };
  });
}

}  // namespace specdec
