#include "experiments/cli/cli.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>

#include "core/error.h"
#include "experiments/cli/commands.h"
#include "experiments/components/device_choice.h"
#include "experiments/config/output_path.h"
#include "experiments/grammar/commands_grammar.h"
#include "experiments/metrics/environment.h"

namespace specdec {
namespace {

/// A device's allocator has a type for it, the CPU's throws a plain c10::Error.
bool is_out_of_memory(const c10::Error& error) {
  return std::string(error.what_without_backtrace()).find("DefaultCPUAllocator") !=
         std::string::npos;
}

[[noreturn]] void fail_out_of_memory(const c10::Error& error) {
  throw Error("out of memory; try a smaller model.max_length or model: " +
              std::string(error.what_without_backtrace()));
}

/// Throws ConfigError for a limit that is none, or that the command would not keep, and for a file
/// that cannot be written.
void check_memory_limit(const GlobalFlags& flags, const std::string& command) {
  try {
    (void)parse_memory_limit(flags.memory_limit, flags.layer_file);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format(
        "{}: {}", flags.memory_limit.empty() ? "--layer-file" : "--memory-limit", error.what()));
  }
  if (const std::string why = refused_output(flags.layer_file);
      !flags.layer_file.empty() && !why.empty()) {
    throw ConfigError("--layer-file: " + why);
  }
  constexpr const char* kReading[] = {"run", "check", "generate", "chat", "logits"};
  const bool reads =
      std::find(std::begin(kReading), std::end(kReading), command) != std::end(kReading);
  if (!reads && !flags.memory_limit.empty()) {
    throw ConfigError(
        fmt::format("--memory-limit: '{}' keeps all weights in memory; leave it out. Layers are "
                    "read from disk by {}.",
                    command, fmt::join(kReading, ", ")));
  }
}

/// Throws ConfigError where a command keeps texts to read on from, or promises the bits of
/// decoding.
void check_prefill_products(const GlobalFlags& flags, const std::string& command) {
  constexpr const char* kReading[] = {"run", "check", "generate", "inspect"};
  if (!flags.prefill_products.empty() &&
      std::find(std::begin(kReading), std::end(kReading), command) == std::end(kReading)) {
    throw ConfigError(
        fmt::format("--prefill-products: '{}' has exact products; leave it out. It is for {}.",
                    command, fmt::join(kReading, ", ")));
  }
}

/// Throws ConfigError for a device that a command cannot use. `run` and `check` say it among the
/// other mistakes of a config, and inspect counts the memory of a GPU without one.
void check_device_flag(const std::string& device, const std::string& command) {
  constexpr size_t kPrefix = 5;  // "cuda:", and a number of one or two digits
  const bool is_cuda =
      device == "cuda" ||
      (device.rfind("cuda:", 0) == 0 && device.size() > kPrefix && device.size() <= kPrefix + 2 &&
       device.find_first_not_of("0123456789", kPrefix) == std::string::npos);
  if (!device.empty() && command != "run" && command != "check" &&
      !(command == "inspect" && is_cuda)) {
    (void)parse_device(device);
  }
}

int dispatch(const std::vector<std::string>& arguments, CommandContext& context) {
  CLI::App app;
  begin_commands(app, context);
  add_run_command(app, context);
  add_compare_command(app, context);
  add_check_command(app, context);
  add_list_command(app, context);
  add_certify_command(app, context);
  add_generate_command(app, context);
  add_chat_command(app, context);
  add_logits_command(app, context);
  add_embed_command(app, context);
  add_inspect_command(app, context);
  add_tokenize_command(app, context);
  add_convert_command(app, context);
  add_profile_command(app, context);
  add_score_command(app, context);
  add_simulate_command(app, context);
  add_import_command(app, context);
  add_answers_command(app, context);
  add_train_command(app, context);
  add_grammar_command(app, context);
  if (const auto ended = parse_commands(app, arguments, context)) {
    return *ended;
  }
  const std::string command = command_name(arguments);
  check_device_flag(context.flags.device, command);
  check_memory_limit(context.flags, command);
  check_prefill_products(context.flags, command);
  context.apply_threads();
  return context.action();
}

}  // namespace

ModelOptions CommandContext::model_options(const ActiveLayers& active) const {
  MemoryLimit memory = parse_memory_limit(flags.memory_limit, flags.layer_file);
  memory.model = active.model;
  ModelOptions options{
      .dtype = flags.dtype,
      .activations = flags.activations,
      .kv_dtype = flags.kv_dtype,
      .device = flags.device.empty() ? "cpu" : flags.device,
      .cache = parse_cache(flags.cache, components),
      .threads = flags.threads,
      .cuda_graphs = flags.cuda_graphs.value_or(ModelOptions{}.cuda_graphs),
      .prefill_graphs = flags.prefill_graphs.value_or(ModelOptions{}.prefill_graphs),
      .memory = memory,
      .active_layers = active};
  try {
    options.library_products = parse_prefill_products(flags.prefill_products, options);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--prefill-products: {}", error.what()));
  }
  return options;
}

std::vector<std::string> CommandContext::overrides() const {
  std::vector<std::string> texts;
  const auto add = [&texts](const char* flag, const char* key, const std::string& value) {
    if (!value.empty()) {
      texts.push_back(fmt::format("{} {}={}", flag, key, value));
    }
  };
  const auto text_of = [](const std::optional<int64_t>& number) {
    return number ? std::to_string(*number) : std::string();
  };
  add("--device", "model.device", flags.device);
  add("--dtype", "model.dtype", flags.dtype);
  add("--activations", "model.activations", flags.activations);
  add("--kv-dtype", "model.kv_dtype", flags.kv_dtype);
  add("--cache", "model.cache", flags.cache.empty() ? std::string() : cache_yaml(flags.cache));
  add("--cuda-graphs", "model.cuda_graphs", text_of(flags.cuda_graphs));
  add("--prefill-graphs", "model.prefill_graphs", text_of(flags.prefill_graphs));
  add("--prefill-products", "model.prefill_products", flags.prefill_products);
  add("--memory-limit", "model.memory_limit", flags.memory_limit);
  add("--layer-file", "model.layer_file", flags.layer_file);
  add("--no-machine-profile", "model.machine_profile", flags.no_machine_profile ? "false" : "");
  add("--threads", "threads", flags.threads > 0 ? std::to_string(flags.threads) : std::string());
  return texts;
}

ProfileDefaults CommandContext::machine_profile(const std::filesystem::path& model) const {
  if (flags.no_machine_profile) {
    return {};
  }
  const Environment machine = read_environment();
  return {model,
          {.processor = machine.cpu, .cores = machine.cores, .device = model_options().device},
          components};
}

void CommandContext::note_profile(const ProfileDefaults& profile) const {
  if (const std::string text = profile.text(); !flags.quiet && !text.empty()) {
    err << text << "\n";
  }
}

void CommandContext::apply_threads() const {
  if (flags.threads > 0) {
    at::set_num_threads(static_cast<int>(flags.threads));
  }
}

int run_cli(const std::vector<std::string>& arguments, const Components& components,
            std::ostream& out, std::ostream& err) {
  CommandContext context{{out, err}, components};
  FLAGS_caffe2_use_fatal_for_enforce =
      false;  // builds with CUDA set it: a failed allocation aborts
  return run_guarded(context, [&] {
    try {
      return dispatch(arguments, context);
    } catch (const c10::OutOfMemoryError& error) {
      fail_out_of_memory(error);
    } catch (const c10::Error& error) {
      if (is_out_of_memory(error)) {
        fail_out_of_memory(error);
      }
      throw;
    }
  });
}

int run_cli(int argc, char** argv, const Components& components) {
  return run_cli(begin_program(argc, argv), components, std::cout, std::cerr);
}

}  // namespace specdec
