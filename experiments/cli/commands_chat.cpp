#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/json_text.h"
#include "core/hub_cache.h"
#include "experiments/cli/chat.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/generation_arguments.h"
#include "experiments/cli/planned_generation.h"
#include "experiments/cli/text_line.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

constexpr const char* kChatHelp =
    "/undo          take the last turn and its answer back\n"
    "/retry         answer the last turn again, with other random choices\n"
    "/reset         take all turns back; the system prompt stays\n"
    "/system TEXT   replace the system prompt (no TEXT: remove it)\n"
    "/stats         say after each answer how it was made, or stop saying it\n"
    "/save FILE     write the chat as JSON (a list of messages)\n"
    "/exit          end the chat, as does the end of the input\n"
    "A line that begins with two slashes is sent with one. Lines between two lines \"\"\" are one\n"
    "turn. Ctrl-C stops an answer.\n";

struct ChatArguments : GenerationArguments {
  std::string system;
  bool shows_statistics = false;
  JsonOption json;
};

/// {"messages": [{"role", "content"}]}, by the roles that chat templates know.
nlohmann::ordered_json messages_json(const std::vector<ChatTurn>& turns) {
  auto messages = nlohmann::ordered_json::array();
  for (const ChatTurn& turn : turns) {
    messages.push_back(
        {{"role", turn.role == "model" ? "assistant" : turn.role}, {"content", turn.text}});
  }
  return {{"messages", std::move(messages)}};
}

nlohmann::json answer_json(const ChatAnswer& answer, int64_t turn) {
  const auto& metrics = answer.metrics;
  nlohmann::json json = {
      {"turn", turn},
      {"text", answer.text},
      {"tokens", answer.tokens},
      {"stop_reason", metrics ? stop_reason_name(metrics->stop_reason) : "interrupted"},
      {"statistics", metrics ? metrics_json(*metrics) : nlohmann::json()}};
  if (!answer.thinking.empty()) {
    json["thinking"] = answer.thinking;
  }
  return json;
}

/// What a user wrote.
struct ChatInput {
  std::string text;
  bool is_command = false;
};

/// Reads turns and commands, writes answers.
class ChatLoop {
 public:
  ChatLoop(const CommandContext& context, const ChatArguments& arguments, Chat& chat,
           std::istream& in)
      : context_(context),
        json_(arguments.json, context.out),
        chat_(chat),
        in_(in),
        is_terminal_(&context.out == &std::cout && ::isatty(STDIN_FILENO) != 0),
        shows_statistics_(arguments.shows_statistics) {}

  void run();

 private:
  /// The next turn or command; nothing at the end of the input.
  std::optional<ChatInput> read();
  std::optional<std::string> read_line(const char* prompt);
  /// False when the chat ends.
  bool obey(const std::string& line);
  void say(const std::string& text) {
    require_utf8(text, "the turn");
    if (text.find_first_not_of(" \t\n") != std::string::npos) {
      answer([&](const ChatWriter& write) { return chat_.answer(text, write); });
    }
  }
  void answer(const std::function<ChatAnswer(const ChatWriter&)>& make);
  void write(std::string_view text, bool is_thinking);
  /// Ends the line of an answer that an error cuts off.
  void break_line() {
    if (is_mid_line_) {
      context_.out << "\n" << std::flush;
    }
  }
  void save(const std::string& file);
  /// A remark about the chat, unless --quiet.
  void note(const std::string& text) {
    if (!context_.flags.quiet) {
      context_.err << text << std::flush;
    }
  }

  const CommandContext& context_;
  JsonOutput json_;
  Chat& chat_;
  std::istream& in_;
  bool is_terminal_;
  bool shows_statistics_;
  bool thinks_ = false;       // what was written last
  bool is_mid_line_ = false;  // of an answer, on standard output
};

std::optional<std::string> ChatLoop::read_line(const char* prompt) {
  if (is_terminal_) {
    context_.err << prompt << std::flush;
  }
  std::string line;
  if (!std::getline(in_, line)) {
    return std::nullopt;
  }
  if (!line.empty() && line.back() == '\r') {
    line.pop_back();
  }
  return line;
}

std::optional<ChatInput> ChatLoop::read() {
  constexpr const char* kQuotes = "\"\"\"";
  auto line = read_line("> ");
  if (!line) {
    return std::nullopt;
  }
  if (*line != kQuotes) {
    const bool is_slashed = line->starts_with("//");
    return ChatInput{line->substr(is_slashed ? 1 : 0), line->starts_with("/") && !is_slashed};
  }
  std::string text;
  while ((line = read_line("... ")) && *line != kQuotes) {
    text += (text.empty() ? "" : "\n") + *line;
  }
  return ChatInput{text};
}

void ChatLoop::run() {
  if (is_terminal_) {
    note("/help lists the commands.\n");
  }
  while (const auto input = read()) {
    try {
      if (!input->is_command) {
        say(input->text);
      } else if (!obey(input->text)) {
        break;
      }
    } catch (const Error& error) {
      if (!is_terminal_) {  // nobody is there to mend it
        throw;
      }
      context_.err << "error: " << error.what() << "\n";
    }
  }
  json_.commit();
}

bool ChatLoop::obey(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string command = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (command == "/exit" || command == "/quit" || command == "/bye") {
    return false;
  }
  if (command == "/help") {
    context_.err << kChatHelp;
  } else if (command == "/reset") {
    chat_.reset();
  } else if (command == "/undo") {
    note(chat_.undo() ? "the last turn is taken back\n" : "there is no turn to take back\n");
  } else if (command == "/retry") {
    answer([&](const ChatWriter& write) { return chat_.retry(write); });
  } else if (command == "/system") {
    chat_.set_system(rest);
  } else if (command == "/stats") {
    shows_statistics_ = !shows_statistics_;
  } else if (command == "/save") {
    save(rest);
  } else {
    throw ConfigError(fmt::format(
        "unknown command '{}'; /help lists them. Two slashes begin a turn that begins with one.",
        command));
  }
  return true;
}

void ChatLoop::answer(const std::function<ChatAnswer(const ChatWriter&)>& make) {
  thinks_ = false;
  is_mid_line_ = false;
  ChatAnswer answer;
  {
    const InterruptGuard interrupts;
    try {
      answer = make([&](std::string_view text, bool is_thinking) { write(text, is_thinking); });
    } catch (const Error&) {
      break_line();
      throw;
    }
  }
  if (!json_.replaces_text()) {
    context_.out << "\n" << std::flush;
  }
  if (!answer.metrics) {
    note("[stopped]\n");
  } else if (shows_statistics_) {
    note(metrics_line(*answer.metrics));
  }
  json_.write(json_text(answer_json(answer, chat_.answers())) + "\n");
}

/// Thinking goes to where remarks go.
void ChatLoop::write(std::string_view text, bool is_thinking) {
  if (is_thinking != thinks_) {
    note(is_thinking ? "[thinking]\n" : "\n[answer]\n");
    thinks_ = is_thinking;
  }
  if (is_thinking) {
    note(std::string(text));
    return;
  }
  if (json_.replaces_text()) {
    return;
  }
  context_.out << text << std::flush;
  is_mid_line_ = true;
  if (!context_.out) {
    throw Error("standard output cannot be written (closed, or the disk is full)");
  }
}

void ChatLoop::save(const std::string& file) {
  if (file.empty()) {
    throw ConfigError("/save: name a file, such as /save chat.json");
  }
  write_file(file, json_text(messages_json(chat_.turns()), 2) + "\n");
  note(fmt::format("{}: {} answers\n", file, chat_.answers()));
}

int run_chat(const CommandContext& context, const ChatArguments& arguments) {
  ModelCatalog catalog;
  const ModelFiles& files = catalog.read(arguments.model, arguments.active_layers);
  const SamplingParams sampling = make_sampling(arguments, files);
  if (!context.flags.quiet) {
    print_notes(files, context.err);
  }
  const auto grammar = read_grammar_text(arguments, files);
  const StopRule stop = make_stop(arguments, files, false);
  const auto [profile, options, config] =
      plan_generation(context, arguments,
                      {.files = files,
                       .catalog = catalog,
                       .sampling = sampling,
                       .max_new_tokens = arguments.max_new_tokens,
                       .has_grammar = grammar.has_value()});
  note_chat_format(context, files);
  check_chat(files, grammar ? &*grammar : nullptr, {});
  context.note_profile(profile);
  ModelLoader loader(options, &catalog);
  auto model = loader.load(arguments.model, parse_adapters(arguments.adapters));
  const TransformerWeights& weights = model->weights();
  PrefixCachedModel target(std::move(model));
  BuildContext build = measuring_context(target, loader);
  build.keeps_prefixes = true;
  const auto strategy = config.make(build);
  print_warnings(context, loader);
  warn_of_sampling(context, arguments, config, grammar.has_value(), 1);
  const c10::InferenceMode guard;
  Chat chat({.files = files,
             .target = target,
             .strategy = *strategy,
             .sampling = sampling,
             .stop = stop,
             .seed = arguments.seed,
             .constraint = config.constraint,
             .grammar = grammar ? &*grammar : nullptr,
             .reads = [&weights] { return layer_reads(weights); }},
            arguments.system);
  ChatLoop(context, arguments, chat, std::cin).run();
  return 0;
}

}  // namespace

void add_chat_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("chat", "chat with a model, in turns from standard input");
  const auto arguments = std::make_shared<ChatArguments>();
  arguments->max_new_tokens = 512;
  add_generation_options(*command, *arguments);
  command->add_option("--system", arguments->system, "the system prompt");
  command->add_flag("--stats", arguments->shows_statistics,
                    "say after each answer how it was made: tokens per second, acceptance");
  add_json_option(*command, arguments->json,
                  "a JSON object for each answer, one a line: turn, text, thinking, tokens, "
                  "stop_reason, statistics");
  command->footer(
      "Turns are written in the checkpoint's chat format; only what is new in the prompt is "
      "evaluated.\n"
      "Answers go to standard output, thinking and remarks to standard error. Ctrl-C stops an "
      "answer.\n"
      "Examples:\n"
      "  specdec chat models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --stats\n"
      "  echo 'Who are you?' | specdec chat models/target --max-new-tokens 32\n"
      "In a chat:\n" +
      std::string(kChatHelp));
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      return run_chat(context, *arguments);
    };
  });
}

}  // namespace specdec
