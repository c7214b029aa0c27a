#include "experiments/cli/component_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <sstream>

#include "core/error.h"
#include "experiments/config/names.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kNameColumns = 20;

template <class Registry>
void append_entries(const std::string& kind, const Registry& registry,
                    std::vector<ComponentHelp>& components) {
  for (const auto& [type, entry] : registry.entries()) {
    components.push_back({kind, type, entry.help, entry.source, entry.page,
                          promise_name(entry.promise), entry.options});
  }
}

std::string plural(const std::string& kind) {
  return kind == "strategy" ? "strategies" : kind + "s";
}

/// Lines of at most `columns` characters, broken between words.
std::vector<std::string> wrap(const std::string& text, size_t columns) {
  std::vector<std::string> lines = {""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    if (!line.empty() && count_characters(line) + 1 + count_characters(word) > columns) {
      lines.push_back(word);
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return lines;
}

/// The lines of `text`, the first one behind `name`.
void print_wrapped(std::ostream& out, const std::string& name, const std::string& text) {
  auto label = name;
  for (const auto& line : wrap(text, kColumns - kNameColumns)) {
    out << fmt::format("{:<{}}{}\n", label, kNameColumns, line);
    label.clear();
  }
}

/// "max_ngram: 8, weights (required)"
std::string options_with_defaults(const std::vector<OptionHelp>& options) {
  std::vector<std::string> texts;
  texts.reserve(options.size());
  for (const OptionHelp& option : options) {
    texts.push_back(option.fallback.empty() ? option.name + " (required)"
                                            : fmt::format("{}: {}", option.name, option.fallback));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string or_required(const std::string& fallback) {
  return fallback.empty() ? "required" : fallback;
}

void print_options(std::ostream& out, const std::vector<OptionHelp>& options) {
  std::vector<Cells> rows = {{"  option", "default", "values", "meaning"}};
  for (const OptionHelp& option : options) {
    const auto fallback = wrap(or_required(option.fallback), 24);
    const auto meaning = wrap(option.meaning, 48);
    for (size_t i = 0; i < std::max(fallback.size(), meaning.size()); ++i) {
      rows.push_back({i == 0 ? "  " + option.name : "", i < fallback.size() ? fallback[i] : "",
                      i == 0 ? option.values : "", i < meaning.size() ? meaning[i] : ""});
    }
  }
  write_aligned(out, rows, rows.front().size());
}

// Markdown.

constexpr std::string_view kListStart = "<!-- specdec list ";
constexpr std::string_view kListEnd = "<!-- end of list -->";

/// A value of YAML in backticks, words as they are.
std::string value_cell(const std::string& text) {
  const bool is_words = text.empty() || text == "none" || text == "required" ||
                        (text.find(' ') != std::string::npos && text[0] != '[' && text[0] != '{');
  return escape_markdown_cell(is_words ? text : "`" + text + "`");
}

/// A source with a link for each "arXiv:2211.17192".
std::string source_cell(const std::string& source) {
  constexpr std::string_view kArxiv = "arXiv:";
  std::string text;
  size_t at = 0;
  for (size_t found; (found = source.find(kArxiv, at)) != std::string::npos;) {
    const size_t number = found + kArxiv.size();
    const size_t end = std::min(source.find_first_not_of("0123456789.", number), source.size());
    text += source.substr(at, found - at);
    text += fmt::format("[{}](https://arxiv.org/abs/{})", source.substr(found, end - found),
                        source.substr(number, end - number));
    at = end;
  }
  return escape_markdown_cell(text + source.substr(at));
}

std::string kind_table(const std::vector<ComponentHelp>& components, bool in_docs) {
  std::string table = fmt::format("| {} | what it does | promise | source |\n|---|---|---|---|\n",
                                  components.front().kind);
  for (const ComponentHelp& component : components) {
    auto name = "`" + component.type + "`";
    const std::string_view docs = "docs/";
    if (!component.page.empty()) {
      const auto link = in_docs && component.page.starts_with(docs)
                            ? component.page.substr(docs.size())
                            : component.page;
      name = fmt::format("[{}]({})", name, link);
    }
    table += fmt::format("| {} | {} | {} | {} |\n", name, escape_markdown_cell(component.help),
                         component.promise, source_cell(component.source));
  }
  return table;
}

/// The type of one of the components, with its kind where others are called the same.
std::string type_cell(const std::vector<ComponentHelp>& components,
                      const ComponentHelp& component) {
  const auto same =
      std::count_if(components.begin(), components.end(),
                    [&](const ComponentHelp& other) { return other.type == component.type; });
  return same > 1 ? fmt::format("`{}` ({})", component.type, component.kind)
                  : fmt::format("`{}`", component.type);
}

/// The options of one component; of several with the type in front.
std::string option_table(const std::vector<ComponentHelp>& components) {
  const bool has_types = components.size() > 1;
  std::string table = has_types ? "| type | option | default | values | |\n|---|---|---|---|---|\n"
                                : "| option | default | values | |\n|---|---|---|---|\n";
  for (const ComponentHelp& component : components) {
    for (const OptionHelp& option : component.options) {
      const bool is_first = &option == component.options.data();
      table +=
          has_types ? fmt::format("| {} ", is_first ? type_cell(components, component) : "") : "";
      table += fmt::format("| `{}` | {} | {} | {} |\n", option.name,
                           value_cell(or_required(option.fallback)), value_cell(option.values),
                           escape_markdown_cell(option.meaning));
    }
  }
  return table;
}

/// `names`: a kind, or types with spaces between them. What is both is the kind.
std::string list_of(const std::vector<ComponentHelp>& all, const std::string& names, bool in_docs) {
  std::vector<ComponentHelp> found;
  std::istringstream words(names);
  for (std::string name; words >> name;) {
    std::vector<ComponentHelp> components = components_named(all, name);
    std::vector<ComponentHelp> kind;
    std::copy_if(components.begin(), components.end(), std::back_inserter(kind),
                 [&](const ComponentHelp& component) { return is_kind(component, name); });
    if (!kind.empty()) {
      return kind_table(kind, in_docs);
    }
    for (ComponentHelp& component : components) {
      if (!component.options.empty()) {
        found.push_back(std::move(component));
      }
    }
  }
  return option_table(found);
}

}  // namespace

bool is_kind(const ComponentHelp& component, const std::string& name) {
  return component.kind == name || plural(component.kind) == name;
}

std::vector<ComponentHelp> describe_components(const Components& all) {
  std::vector<ComponentHelp> components;
  append_entries("strategy", all.strategies, components);
  append_entries("drafter", all.drafters, components);
  append_entries("verifier", all.verifiers, components);
  append_entries("draft_length", all.draft_lengths, components);
  append_entries("tree", all.trees, components);
  append_entries("cache", all.caches, components);
  return components;
}

std::vector<ComponentHelp> components_named(const std::vector<ComponentHelp>& all,
                                            const std::string& name) {
  std::vector<ComponentHelp> found;
  std::set<std::string> names;
  for (const ComponentHelp& component : all) {
    names.insert({component.kind, component.type});
    if (component.type == name || is_kind(component, name)) {
      found.push_back(component);
    }
  }
  if (found.empty()) {
    const std::vector<std::string> known(names.begin(), names.end());
    throw ConfigError(fmt::format("'{}' is neither a kind of component nor the type of one{}", name,
                                  known_names_text(name, known)));
  }
  return found;
}

void print_components(std::ostream& out, const std::vector<ComponentHelp>& components) {
  std::string kind;
  for (const ComponentHelp& component : components) {
    if (component.kind != kind) {
      kind = component.kind;
      out << fmt::format("{}{}\n", &component == components.data() ? "" : "\n", plural(kind));
    }
    print_wrapped(out, "  " + component.type,
                  fmt::format("{} [{}]", component.help, component.promise));
    if (!component.options.empty()) {
      print_wrapped(out, "", options_with_defaults(component.options));
    }
  }
  out << "\n";
}

void print_details(std::ostream& out, const std::vector<ComponentHelp>& components) {
  for (const ComponentHelp& component : components) {
    out << fmt::format("{}{} {}\n", &component == components.data() ? "" : "\n", component.kind,
                       component.type);
    print_wrapped(out, "  what it does", component.help);
    print_wrapped(out, "  promise", component.promise);
    if (!component.source.empty()) {
      print_wrapped(out, "  source", component.source);
    }
    if (!component.page.empty()) {
      print_wrapped(out, "  page", component.page);
    }
    if (!component.options.empty()) {
      out << "\n";
      print_options(out, component.options);
    }
  }
}

nlohmann::ordered_json components_json(const std::vector<ComponentHelp>& components) {
  nlohmann::ordered_json kinds = nlohmann::ordered_json::object();
  for (const ComponentHelp& component : components) {
    auto options = nlohmann::ordered_json::array();
    for (const OptionHelp& option : component.options) {
      options.push_back({{"name", option.name},
                         {"required", option.fallback.empty()},
                         {"default", option.fallback},
                         {"values", option.values},
                         {"meaning", option.meaning}});
    }
    kinds[plural(component.kind)].push_back({{"type", component.type},
                                             {"help", component.help},
                                             {"promise", component.promise},
                                             {"source", component.source},
                                             {"page", component.page},
                                             {"options", std::move(options)}});
  }
  return kinds;
}

std::string with_component_lists(std::string_view page, const std::vector<ComponentHelp>& all,
                                 bool in_docs) {
  constexpr std::string_view kMarkerEnd = " -->\n";
  std::string result;
  size_t at = 0;
  for (size_t start; (start = page.find(kListStart, at)) != std::string_view::npos;) {
    const size_t name_at = start + kListStart.size();
    const size_t name_end = page.find(kMarkerEnd, name_at);
    const size_t end = page.find(kListEnd, name_at);
    if (end == std::string_view::npos || name_end > end) {
      throw ConfigError(fmt::format("the list that begins with '{}' has no '{}'",
                                    page.substr(start, page.find('\n', start) - start), kListEnd));
    }
    const std::string name(page.substr(name_at, name_end - name_at));
    result += page.substr(at, name_end + kMarkerEnd.size() - at);
    result += list_of(all, name, in_docs);
    at = end;
  }
  result += page.substr(at);
  return result;
}

}  // namespace specdec
