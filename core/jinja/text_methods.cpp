// The methods of texts.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/jinja/builtins.h"

namespace specdec {
namespace {

using Bound = JinjaBoundArguments;

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

template <bool kLeft, bool kRight>
JinjaValue strip_method(const JinjaText& text, const Bound& given) {
  const std::string* set = given_value(given[0]) ? &text_of(*given[0]).bytes() : nullptr;
  given.budget.take(set == nullptr ? 0 : text.size() * set->size() / 16);
  return text.stripped(set, kLeft, kRight);
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
    return text_list(text.words(given.budget));
  }
  const std::string& separator = text_of(*given[0]).bytes();
  if (separator.empty()) {
    throw Error("split needs a separator.");
  }
  return text_list(text.split(separator, most, given.budget));
}

/// Whether one of the texts, of which there may be a tuple, satisfies `fits`.
template <class Fits>
JinjaValue fits_one(const JinjaValue& texts, JinjaBudget& budget, const Fits& fits) {
  const auto* list = as_list(texts);
  if (list == nullptr) {
    return fits(text_of(texts).bytes());
  }
  if (list->kind != JinjaList::Kind::kTuple) {
    throw Error("a text or a tuple of texts is needed, but it is a list.");
  }
  return std::any_of(list->values.begin(), list->values.end(), [&](const JinjaValue& one) {
    budget.take(text_of(one).size() + 1);
    return fits(text_of(one).bytes());
  });
}

JinjaValue replace_method(const JinjaText& text, const Bound& given) {
  const std::string& from = text_of(needed(given[0])).bytes();
  if (from.empty()) {
    throw Error("replacing an empty text is not supported.");
  }
  return text.replaced(from, text_of(needed(given[1])),
                       given[2] == nullptr ? -1 : integer_of(*given[2]), given.budget);
}

/// The text with ASCII letters in upper case where `upper` says so, else in lower case.
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
  for (const JinjaValue& one : items_of(needed(given[0]), given.budget)) {
    result += std::exchange(first, false) ? JinjaText() : separator;
    result += text_of(one);
  }
  return result;
}

JinjaValue starts_with(const JinjaText& text, const Bound& given) {
  return fits_one(needed(given[0]), given.budget,
                  [&](const std::string& one) { return text.bytes().starts_with(one); });
}

JinjaValue ends_with(const JinjaText& text, const Bound& given) {
  return fits_one(needed(given[0]), given.budget,
                  [&](const std::string& one) { return text.bytes().ends_with(one); });
}

JinjaValue without_prefix(const JinjaText& text, const Bound& given) {
  const std::string& prefix = text_of(needed(given[0])).bytes();
  return text.part(text.bytes().starts_with(prefix) ? prefix.size() : 0, text.size());
}

JinjaValue without_suffix(const JinjaText& text, const Bound& given) {
  const std::string& suffix = text_of(needed(given[0])).bytes();
  return text.part(0, text.size() - (text.bytes().ends_with(suffix) ? suffix.size() : 0));
}

JinjaValue first_place(const JinjaText& text, const Bound& given) {
  return found_at(text, place_of(text_of(needed(given[0])).bytes(), text.bytes()));
}

JinjaValue last_place(const JinjaText& text, const Bound& given) {
  const std::string& part = text_of(needed(given[0])).bytes();
  given.budget.take(text.size() * part.size() / 16);
  return found_at(text, text.bytes().rfind(part));
}

bool always(const std::string& /*bytes*/, size_t /*i*/) { return true; }
bool never(const std::string& /*bytes*/, size_t /*i*/) { return false; }
bool at_first(const std::string& /*bytes*/, size_t i) { return i == 0; }
bool at_words(const std::string& bytes, size_t i) {
  return i == 0 || !is_ascii_letter(bytes[i - 1]);
}

template <bool (*kUpper)(const std::string& bytes, size_t i)>
JinjaValue case_method(const JinjaText& text, const Bound& /*given*/) {
  return with_case(text, kUpper);
}

const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> all = {
      {"strip", {{"chars"}, strip_method<true, true>}},
      {"lstrip", {{"chars"}, strip_method<true, false>}},
      {"rstrip", {{"chars"}, strip_method<false, true>}},
      {"split", {{"sep", "maxsplit"}, split_method}},
      {"replace", {{"old", "new", "count"}, replace_method}},
      {"join", {{"iterable"}, joined}},
      {"startswith", {{"prefix"}, starts_with}},
      {"endswith", {{"suffix"}, ends_with}},
      {"removeprefix", {{"prefix"}, without_prefix}},
      {"removesuffix", {{"suffix"}, without_suffix}},
      {"find", {{"sub"}, first_place}},
      {"rfind", {{"sub"}, last_place}},
      {"upper", {{}, case_method<always>}},
      {"lower", {{}, case_method<never>}},
      {"capitalize", {{}, case_method<at_first>}},
      {"title", {{}, case_method<at_words>}}};
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
  JinjaBudget& budget = arguments.budget;
  budget.take(text.size(), JinjaBudget::kCharacter);
  JinjaValue result =
      method->second.call(text, bound_arguments(arguments, method->second.parameters, name));
  budget.take(holds<JinjaText>(result) ? text_of(result).size() : 0, 2);
  return result;
}

}  // namespace specdec
