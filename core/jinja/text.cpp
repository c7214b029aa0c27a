#include "core/jinja/text.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 26U;

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

size_t place_of(std::string_view part, std::string_view text, size_t begin) {
  if (begin > text.size()) {
    return std::string_view::npos;
  }
  if (part.empty()) {
    return begin;
  }
  const void* found = memmem(text.data() + begin, text.size() - begin, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) {
    return std::string(text);
  }
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  return std::string(text.substr(0, end)) + "...";
}

JinjaText::JinjaText(std::string_view text, char author) {
  if (!text.empty()) {
    written_ = std::make_shared<Written>(
        Written{.bytes = std::string(text), .authors = std::string(text.size(), author)});
  }
}

const std::string& JinjaText::bytes() const {
  static const std::string none;
  return written_ == nullptr ? none : written_->bytes;
}

JinjaText::Written& JinjaText::own() {
  if (written_ == nullptr) {
    written_ = std::make_shared<Written>();
  } else if (written_.use_count() > 1) {
    written_ = std::make_shared<Written>(*written_);
  }
  return *written_;
}

size_t JinjaText::written_from(size_t begin) const {
  return written_ == nullptr ? 0 : std::min(written_->authors.find('\1', begin), size()) - begin;
}

JinjaText JinjaText::part(size_t begin, size_t end) const {
  if (begin == 0 && end == size()) {
    return *this;
  }
  JinjaText result;
  if (begin < end) {
    Written& part = result.own();
    part.bytes = bytes().substr(begin, end - begin);
    part.authors = written_->authors.substr(begin, end - begin);
  }
  return result;
}

JinjaText& JinjaText::operator+=(const JinjaText& other) {
  if (size() + other.size() > kMaxBytes) {
    throw Error(fmt::format("it makes a text of more than {} bytes.", kMaxBytes));
  }
  if (empty()) {
    written_ = other.written_;
  } else if (!other.empty()) {
    const JinjaText kept = other;  // other may be this
    Written& all = own();
    all.bytes += kept.written_->bytes;
    all.authors += kept.written_->authors;
  }
  return *this;
}

void JinjaText::append_for(std::string_view character, const JinjaText& source, size_t i) {
  const char author = source.written_->authors[i];
  Written& all = own();
  all.bytes += character;
  all.authors.append(character.size(), author);
}

std::vector<size_t> JinjaText::characters() const {
  std::vector<size_t> begins;
  const std::string_view all = bytes();
  for (size_t at = 0; at < all.size(); at += scan_utf8(all.substr(at)).bytes) {
    begins.push_back(at);
  }
  begins.push_back(all.size());
  return begins;
}

int64_t JinjaText::character_count() const {
  const std::string_view all = bytes();
  int64_t count = 0;
  for (size_t at = 0; at < all.size(); at += scan_utf8(all.substr(at)).bytes) {
    ++count;
  }
  return count;
}

JinjaText JinjaText::stripped(const std::string* set, bool left, bool right) const {
  const std::string_view all = bytes();
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

std::vector<JinjaText> JinjaText::split(std::string_view separator, int64_t most,
                                        JinjaBudget& budget) const {
  std::vector<JinjaText> parts;
  size_t begin = 0;
  for (size_t at = place_of(separator, bytes());
       at != std::string::npos && (most < 0 || static_cast<int64_t>(parts.size()) < most);
       at = place_of(separator, bytes(), begin)) {
    budget.take(1, JinjaBudget::kValue);
    parts.push_back(part(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(part(begin, size()));
  return parts;
}

std::vector<JinjaText> JinjaText::words(JinjaBudget& budget) const {
  std::vector<JinjaText> parts;
  const std::string_view all = bytes();
  const std::vector<size_t> begins = characters();
  size_t begin = 0;
  for (const size_t at : begins) {
    const bool ends = at == size() || python_space_at(all.substr(at)) > 0;
    if (ends && at > begin) {
      budget.take(1, JinjaBudget::kValue);
      parts.push_back(part(begin, at));
    }
    begin = ends && at < size() ? at + python_space_at(all.substr(at)) : begin;
  }
  return parts;
}

JinjaText JinjaText::replaced(std::string_view from, const JinjaText& to, int64_t most,
                              JinjaBudget& budget) const {
  JinjaText result;
  const std::vector<JinjaText> parts = split(from, most, budget);
  for (size_t i = 0; i < parts.size(); ++i) {
    result += i == 0 ? JinjaText() : to;
    result += parts[i];
  }
  return result;
}

}  // namespace specdec
