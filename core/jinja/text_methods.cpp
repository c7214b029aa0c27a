// The methods of texts.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/jinja/builtins.h"

namespace specdec {
namespace {

using Bound = std::vector<const JinjaValue*>;

struct TextMethod {
  std::vector<std::string_view> parameters;
  JinjaValue (*call)(const JinjaText& text, const Bound& given) = nullptr;
};

const JinjaValue& needed(const JinjaValue* argument) {
  if (argument == nullptr) {
    throw Error("an argument is missing.");
  }
  return *argument;
}

bool given_value(const JinjaValue* argument) {
  return argument != nullptr && !holds<JinjaNone>(*argument);
}

const std::string* character_set(const JinjaValue* argument) {
  return given_value(argument) ? &text_of(*argument).bytes() : nullptr;
}

JinjaValue text_list(const std::vector<JinjaText>& parts) {
  return jinja_list({parts.begin(), parts.end()});
}

JinjaValue split_method(const JinjaText& text, const Bound& given) {
  const int64_t most = given[1] == nullptr ? -1 : integer_of(*given[1]);
  if (!given_value(given[0])) {
    if (most >= 0) {
      throw Error("split with a number, but no separator, is not supported.");
    }
    return text_list(text.words());
  }
  const std::string& separator = text_of(*given[0]).bytes();
  if (separator.empty()) {
    throw Error("split needs a separator.");
  }
  return text_list(text.split(separator, most));
}

/// Whether one of the texts, of which there may be a tuple, satisfies `fits`.
template <class Fits>
JinjaValue fits_one(const JinjaValue& texts, const Fits& fits) {
  const auto* list = as_list(texts);
  if (list == nullptr) {
    return fits(text_of(texts).bytes());
  }
  if (list->kind != JinjaList::Kind::kTuple) {
    throw Error("a text or a tuple of texts is needed, but it is a list.");
  }
  return std::any_of(list->values.begin(), list->values.end(),
                     [&](const JinjaValue& one) { return fits(text_of(one).bytes()); });
}

JinjaValue replace_method(const JinjaText& text, const Bound& given) {
  const std::string& from = text_of(needed(given[0])).bytes();
  if (from.empty()) {
    throw Error("replacing an empty text is not supported.");
  }
  return text.replaced(from, text_of(needed(given[1])),
                       given[2] == nullptr ? -1 : integer_of(*given[2]));
}

/// With ASCII letters in upper case where `upper` says so, else in lower case.
JinjaText with_case(const JinjaText& text, bool (*upper)(const std::string& bytes, size_t i)) {
  JinjaText result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    if (static_cast<unsigned char>(c) >= 0x80) {
      throw Error("changing the case of letters outside ASCII is not supported.");
    }
    const bool lower_letter = c >= 'a' && c <= 'z';
    const bool upper_letter = c >= 'A' && c <= 'Z';
    const bool wants_upper = upper(text.bytes(), i);
    const bool changes = (lower_letter && wants_upper) || (upper_letter && !wants_upper);
    const char changed = static_cast<char>(changes ? c ^ 0x20 : c);
    result.append_for({&changed, 1}, text, i);
  }
  return result;
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

JinjaValue found_at(const JinjaText& text, size_t at) {
  const std::vector<size_t> begins = text.characters();
  const auto found = std::lower_bound(begins.begin(), begins.end(), at);
  return at == std::string::npos ? int64_t{-1} : static_cast<int64_t>(found - begins.begin());
}

JinjaValue joined(const JinjaText& separator, const Bound& given) {
  JinjaText result;
  bool first = true;
  for (const JinjaValue& one : items_of(needed(given[0]))) {
    result += std::exchange(first, false) ? JinjaText() : separator;
    result += text_of(one);
  }
  return result;
}

const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> all = {
      {"strip",
       {{"chars"},
        [](const JinjaText& text, const Bound& given) -> JinjaValue {
          return text.stripped(character_set(given[0]), true, true);
        }}},
      {"lstrip",
       {{"chars"},
        [](const JinjaText& text, const Bound& given) -> JinjaValue {
          return text.stripped(character_set(given[0]), true, false);
        }}},
      {"rstrip",
       {{"chars"},
        [](const JinjaText& text, const Bound& given) -> JinjaValue {
          return text.stripped(character_set(given[0]), false, true);
        }}},
      {"split", {{"sep", "maxsplit"}, split_method}},
      {"replace", {{"old", "new", "count"}, replace_method}},
      {"join", {{"iterable"}, joined}},
      {"startswith",
       {{"prefix"},
        [](const JinjaText& text, const Bound& given) {
          return fits_one(needed(given[0]),
                          [&](const std::string& one) { return text.bytes().starts_with(one); });
        }}},
      {"endswith",
       {{"suffix"},
        [](const JinjaText& text, const Bound& given) {
          return fits_one(needed(given[0]),
                          [&](const std::string& one) { return text.bytes().ends_with(one); });
        }}},
      {"removeprefix",
       {{"prefix"},
        [](const JinjaText& text, const Bound& given) -> JinjaValue {
          const std::string& prefix = text_of(needed(given[0])).bytes();
          return text.part(text.bytes().starts_with(prefix) ? prefix.size() : 0, text.size());
        }}},
      {"removesuffix",
       {{"suffix"},
        [](const JinjaText& text, const Bound& given) -> JinjaValue {
          const std::string& suffix = text_of(needed(given[0])).bytes();
          const bool ends = text.bytes().ends_with(suffix);
          return text.part(0, text.size() - (ends ? suffix.size() : 0));
        }}},
      {"find",
       {{"sub"},
        [](const JinjaText& text, const Bound& given) {
          return found_at(text, text.bytes().find(text_of(needed(given[0])).bytes()));
        }}},
      {"rfind",
       {{"sub"},
        [](const JinjaText& text, const Bound& given) {
          return found_at(text, text.bytes().rfind(text_of(needed(given[0])).bytes()));
        }}},
      {"upper",
       {{},
        [](const JinjaText& text, const Bound&) -> JinjaValue {
          return with_case(text, [](const std::string&, size_t) { return true; });
        }}},
      {"lower",
       {{},
        [](const JinjaText& text, const Bound&) -> JinjaValue {
          return with_case(text, [](const std::string&, size_t) { return false; });
        }}},
      {"capitalize",
       {{},
        [](const JinjaText& text, const Bound&) -> JinjaValue {
          return with_case(text, [](const std::string&, size_t i) { return i == 0; });
        }}},
      {"title", {{}, [](const JinjaText& text, const Bound&) -> JinjaValue {
                   return with_case(text, [](const std::string& bytes, size_t i) {
                     return i == 0 || !is_ascii_letter(bytes[i - 1]);
                   });
                 }}}};
  return all;
}

constexpr std::string_view kOtherTextMethods[] = {
    "casefold",  "center",    "count",       "encode",  "expandtabs", "format",  "format_map",
    "index",     "isalnum",   "isalpha",     "isascii", "isdecimal",  "isdigit", "isidentifier",
    "islower",   "isnumeric", "isprintable", "isspace", "istitle",    "isupper", "ljust",
    "maketrans", "partition", "rindex",      "rjust",   "rpartition", "rsplit",  "splitlines",
    "swapcase",  "translate", "zfill"};

}  // namespace

bool is_text_method(std::string_view name) {
  return text_methods().contains(name) ||
         std::find(std::begin(kOtherTextMethods), std::end(kOtherTextMethods), name) !=
             std::end(kOtherTextMethods);
}

JinjaValue call_text_method(const JinjaText& text, std::string_view name,
                            const JinjaArguments& arguments) {
  const auto method = text_methods().find(name);
  if (method == text_methods().end()) {
    throw Error(fmt::format("the method {}() of texts is not supported.", name));
  }
  return method->second.call(text, bound_arguments(arguments, method->second.parameters, name));
}

}  // namespace specdec
