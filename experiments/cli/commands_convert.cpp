#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "core/error.h"
#include "core/families/convert/convert.h"
#include "core/families/model.h"
#include "core/hub_cache.h"
#include "core/transformer/adapters/lora_adapter.h"
#include "experiments/cli/commands.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

struct ConvertArguments {
  std::string input, output;
  std::vector<std::string> adapters;
  bool force = false;
  bool no_tokenizer = false;
};

std::optional<DType> conversion_dtype(const std::string& name) {
  constexpr std::pair<const char*, DType> kKnown[] = {{"float32", DType::kF32},
                                                      {"float16", DType::kF16},
                                                      {"bfloat16", DType::kBF16},
                                                      {"int8", DType::kQ80}};
  if (name.empty() || name == "stored") {
    return std::nullopt;
  }
  for (const auto& [known, dtype] : kKnown) {
    if (name == known) {
      return dtype;
    }
  }
  throw ConfigError(fmt::format(
      "unknown dtype '{}' of a conversion; known: stored, float32, float16, bfloat16, int8", name));
}

/// What the adapters add, read beside the model's weights.
std::map<std::string, ModuleUpdate> read_updates(const std::filesystem::path& input,
                                                 const std::vector<std::string>& adapters) {
  if (adapters.empty()) {
    return {};
  }
  const auto base = load_model(input);
  AdapterStack stack(base);
  for (const AdapterChoice& adapter : parse_adapters(adapters)) {
    stack.push({load_lora(adapter.path, base), adapter.scale});
  }
  return module_updates(stack);
}

int convert(const CommandContext& context, const ConvertArguments& arguments) {
  GlobalFlags unread = context.flags;
  unread.dtype.clear();  // of the conversion
  refuse_model_flags(unread, "convert writes weights, and runs no model; leave it out");
  const auto input = find_model(arguments.input);
  ModelConverter converter(input, arguments.output,
                           {.dtype = conversion_dtype(context.flags.dtype),
                            .tokenizer = !arguments.no_tokenizer,
                            .replace = arguments.force,
                            .updates = read_updates(input, arguments.adapters)});
  const ConversionSummary& made = converter.summary();
  const InterruptGuard guard;
  {
    Progress progress(context.err, Progress::choose_style(context.flags.quiet), made.tensors,
                      "tensors");
    converter.write([&progress](const std::string& tensor) {
      InterruptGuard::check();
      progress.advance(tensor);
    });
  }
  for (const std::string& note : made.notes) {
    context.err << "note: " << note << '\n';
  }
  context.out << fmt::format("{}: {}, {} tensors, {}, {:.1f} MB\n", arguments.output, made.family,
                             made.tensors, dtype_name(made.dtype),
                             static_cast<double>(made.bytes) / 1e6);
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "convert", "convert a model between a Hugging Face folder and a GGUF file");
  const auto arguments = std::make_shared<ConvertArguments>();
  command->add_option("INPUT", arguments->input, kModelHelp)->required();
  command
      ->add_option("OUTPUT", arguments->output,
                   "a name that ends in .gguf: a GGUF file; any other: a folder")
      ->required();
  add_adapter_option(*command, arguments->adapters);
  command->add_flag("--force", arguments->force, "replace an output that is there");
  command->add_flag("--no-tokenizer", arguments->no_tokenizer,
                    "leave the tokenizer out: the result takes token ids only");
  command->footer(
      "--dtype float32, float16, bfloat16 or int8 (GGUF's Q8_0) is that of the matrices; without\n"
      "it (or with stored) they stay as they are, and what no conversion writes, blocks (Q4_1,\n"
      "...) and float64, becomes float32. Norms and biases are not rounded. The tokenizer and its\n"
      "chat template are converted too. What llama.cpp reads otherwise than the model says is\n"
      "noted. --adapter writes the sums of the weights and what LoRA folders add. Examples:\n"
      "  specdec convert weights/Llama-3.2-1B llama.gguf --dtype int8\n"
      "  specdec convert models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf weights/smollm2\n"
      "  specdec convert models/base weights/merged --adapter my_lora");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return convert(context, *arguments); };
  });
}

}  // namespace specdec
