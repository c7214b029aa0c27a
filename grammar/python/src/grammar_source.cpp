#include "grammar_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "core/error.h"
#include "grammar/grammar_source.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace specdec::python {
namespace {

/// True for the first name, false for the second.
bool is_first(const char* option, const std::string& value, const char* first, const char* second) {
  if (value != first && value != second) {
    throw Error(fmt::format("{} is '{}'; it must be '{}' or '{}'", option, value, first, second));
  }
  return value == first;
}

uint32_t checked_whitespace(uint32_t max_whitespace) {
  if (max_whitespace > kMaxWhitespace) {
    throw Error(
        fmt::format("max_whitespace is {}; it can be {} at most", max_whitespace, kMaxWhitespace));
  }
  return max_whitespace;
}

GrammarKind kind_of(const std::string& name) {
  const auto kind = parse_grammar_kind(name);
  if (!kind) {
    throw Error(fmt::format("there is no kind of grammar '{}'; there are {}", name,
                            fmt::join(grammar_kind_names(), ", ")));
  }
  return *kind;
}

void set_limit(GrammarLimits& limits, const std::string& name, uint64_t value) {
  const std::map<std::string, uint64_t*> counts = {
      {"max_regex_states", &limits.max_regex_states}, {"max_mask_bytes", &limits.max_mask_bytes},
      {"max_alternatives", &limits.max_alternatives}, {"max_steps", &limits.max_steps},
      {"max_seconds", &limits.max_seconds},           {"max_states", &limits.max_states},
      {"max_unrolled", &limits.max_unrolled},         {"max_symbols", &limits.max_symbols},
      {"max_state_items", &limits.max_state_items}};
  if (const auto found = counts.find(name); found != counts.end()) {
    *found->second = value;
  } else if (name == "max_bytes") {
    limits.max_bytes = value;
  } else if (name == "max_nesting") {
    limits.max_nesting = static_cast<int>(std::min<uint64_t>(value, 10'000));
  } else {
    throw Error(fmt::format("there is no limit '{}'; docs/grammar.md lists them", name));
  }
}

}  // namespace

void bind_grammar_source(nb::module_& m) {
  using Tag = GrammarSource::Trigger;
  using Texts = std::vector<std::string>;
  auto tag = nb::class_<Tag>(m, "Tag",
                             "After the text `begin` a text of the grammar must come, then `end`.");
  nb::class_<GrammarSource>(m, "GrammarSource", "A grammar as it is given, in any notation.")
      .def(
          "__init__",
          [](GrammarSource* self, const std::string& kind, const std::string& text,
             const std::string& name, const std::string& start, const Texts& choices,
             const std::vector<Tag>& tags, const std::string& order, const std::string& format,
             const std::string& whitespace, uint32_t max_whitespace, const std::string& escapes,
             const std::map<std::string, std::string>& registry, bool canonical,
             const std::map<std::string, uint64_t>& limits) {
            GrammarSource source;
            source.kind = kind_of(kind);
            source.text = text;
            source.name = name;
            source.start = start;
            source.choices = choices;
            source.triggers = tags;
            source.schema.schema_order = is_first("order", order, "schema", "any");
            source.schema.assert_formats = is_first("format", format, "assert", "annotate");
            source.schema.whitespace = whitespace;
            check_whitespace(whitespace);
            source.schema.max_whitespace = checked_whitespace(max_whitespace);
            source.schema.escapes = is_first("escapes", escapes, "any", "minimal")
                                        ? EscapeStyle::kAny
                                        : EscapeStyle::kMinimal;
            for (const auto& [uri, document] : registry) {
              source.schema.registry.add(uri, document);
            }
            source.cuts = canonical ? Cuts::kCanonical : Cuts::kAny;
            for (const auto& [limit, value] : limits) {
              set_limit(source.limits, limit, value);
            }
            new (self) GrammarSource(std::move(source));
          },
          "kind"_a, "text"_a = "", nb::kw_only(), "name"_a = "", "start"_a = "",
          "choices"_a = Texts(), "tags"_a = std::vector<Tag>(), "order"_a = "schema",
          "format"_a = "assert", "whitespace"_a = "compact", "max_whitespace"_a = 0,
          "escapes"_a = "minimal", "registry"_a = std::map<std::string, std::string>(),
          "canonical"_a = false, "limits"_a = std::map<std::string, uint64_t>())
      .def_prop_ro("kind", [](const GrammarSource& self) { return grammar_kind_name(self.kind); });
  tag.def(
         "__init__",
         [](Tag* self, const std::string& begin, const GrammarSource& grammar,
            const std::string& end) {
           new (self) Tag{begin, grammar, end};
         },
         "begin"_a, "grammar"_a, "end"_a = "")
      .def_ro("begin", &Tag::begin)
      .def_ro("end", &Tag::end);
  m.def(
      "grammar_kinds", [] { return grammar_kind_names(); },
      "Names of the notations: \"json_schema\", \"regex\", ...");
}

}  // namespace specdec::python
