#include "core/jinja/text.h"

#include <algorithm>

#include "core/error.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr size_t kMostBytes = size_t{1} << 26U;

constexpr std::string_view kPythonSpaces[] = {
    " ",      "\n",     "\t",     "\v",     "\f",     "\r",     "\x1C",   "\x1D",
    "\x1E",   "\x1F",   "\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002",
    "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200A",
    "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};

bool in_set(std::string_view character, const std::string* set) {
  return set == nullptr ? python_space_at(character) > 0
                        : set->find(character) != std::string::npos;
}

}  // namespace

size_t python_space_at(std::string_view text) {
  for (const std::string_view space : kPythonSpaces) {
    if (text.starts_with(space)) {
      return space.size();
    }
  }
  return 0;
}

size_t without_spaces_behind(std::string_view text) {
  const auto ends_with_space = [&] {
    return std::find_if(std::begin(kPythonSpaces), std::end(kPythonSpaces),
                        [&](std::string_view space) { return text.ends_with(space); });
  };
  for (auto space = ends_with_space(); space != std::end(kPythonSpaces);
       space = ends_with_space()) {
    text.remove_suffix(space->size());
  }
  return text.size();
}

size_t JinjaText::written_from(size_t begin) const {
  return std::min(authors_.find('\1', begin), size()) - begin;
}

JinjaText JinjaText::part(size_t begin, size_t end) const {
  JinjaText result;
  result.bytes_ = bytes_.substr(begin, end - begin);
  result.authors_ = authors_.substr(begin, end - begin);
  return result;
}

JinjaText& JinjaText::operator+=(const JinjaText& other) {
  if (size() + other.size() > kMostBytes) {
    throw Error(fmt::format("it makes a text of more than {} bytes.", kMostBytes));
  }
  bytes_ += other.bytes_;
  authors_ += other.authors_;
  return *this;
}

void JinjaText::append_for(std::string_view character, const JinjaText& source, size_t i) {
  bytes_ += character;
  authors_.append(character.size(), source.authors_[i]);
}

std::vector<size_t> JinjaText::characters() const {
  std::vector<size_t> begins;
  for (size_t at = 0; at < size(); at += scan_utf8(std::string_view(bytes_).substr(at)).bytes) {
    begins.push_back(at);
  }
  begins.push_back(size());
  return begins;
}

JinjaText JinjaText::stripped(const std::string* set, bool left, bool right) const {
  const std::string_view all = bytes_;
  const std::vector<size_t> begins = characters();
  const auto strips = [&](size_t i) {
    return in_set(all.substr(begins[i], begins[i + 1] - begins[i]), set);
  };
  size_t begin = 0;
  size_t end = begins.size() - 1;
  while (left && begin < end && strips(begin)) {
    ++begin;
  }
  while (right && end > begin && strips(end - 1)) {
    --end;
  }
  return part(begins[begin], begins[end]);
}

std::vector<JinjaText> JinjaText::split(std::string_view separator, int64_t most) const {
  std::vector<JinjaText> parts;
  size_t begin = 0;
  for (size_t at = bytes_.find(separator);
       at != std::string::npos && (most < 0 || static_cast<int64_t>(parts.size()) < most);
       at = bytes_.find(separator, begin)) {
    parts.push_back(part(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(part(begin, size()));
  return parts;
}

std::vector<JinjaText> JinjaText::words() const {
  std::vector<JinjaText> parts;
  const std::string_view all = bytes_;
  const std::vector<size_t> begins = characters();
  size_t begin = 0;
  for (const size_t at : begins) {
    const bool ends = at == size() || python_space_at(all.substr(at)) > 0;
    if (ends && at > begin) {
      parts.push_back(part(begin, at));
    }
    begin = ends && at < size() ? at + python_space_at(all.substr(at)) : begin;
  }
  return parts;
}

JinjaText JinjaText::replaced(std::string_view from, const JinjaText& to, int64_t most) const {
  JinjaText result;
  const std::vector<JinjaText> parts = split(from, most);
  for (size_t i = 0; i < parts.size(); ++i) {
    result += i == 0 ? JinjaText() : to;
    result += parts[i];
  }
  return result;
}

}  // namespace specdec
