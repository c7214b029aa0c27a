#include "grammar/regex/string_format.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/error.h"
#include "grammar/regex/regex_format.h"
#include "grammar/regex/string_format_names.h"

namespace specdec {
namespace {

constexpr int kMinutesOfADay = 24 * 60;

std::u32string two_digits(int value) {
  return {static_cast<char32_t>(U'0' + value / 10), static_cast<char32_t>(U'0' + value % 10)};
}

/// Minutes as hh:mm.
std::u32string clock(int minutes) {
  return two_digits(minutes / 60) + U":" + two_digits(minutes % 60);
}

/// RFC 3339's full-date, with the Gregorian rule of leap years.
RegexId date(RegexStore& store) {
  return format_pattern(
      store,
      "\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
      "02-(0[1-9]|1\\d|2[0-8]))|"
      "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29");
}

/// Leap seconds: those times with offsets whose UTC is 23:59:60.
RegexId leap_time(RegexStore& store) {
  const RegexId fraction = format_pattern(store, "(\\.\\d+)?");
  const auto offset = [&](std::u32string_view sign, int minutes) {
    return store.concat(store.literal(sign), store.literal(clock(minutes)));
  };
  std::vector<RegexId> hours;
  for (int hour = 0; hour < 24; ++hour) {
    std::vector<RegexId> minutes;
    for (int minute = 0; minute < 60; ++minute) {
      const int ahead = (60 * hour + minute + 1) % kMinutesOfADay;
      RegexId offsets = store.any_of(offset(U"+", ahead),
                                     offset(U"-", (kMinutesOfADay - ahead) % kMinutesOfADay));
      if (ahead == 0) {
        offsets = store.any_of(offsets, format_pattern(store, "[Zz]"));
      }
      const RegexId seconds = store.literal(two_digits(minute) + U":60");
      minutes.push_back(store.concat(seconds, store.concat(fraction, offsets)));
    }
    hours.push_back(store.concat(store.literal(two_digits(hour) + U":"), store.any_of(minutes)));
  }
  return store.any_of(hours);
}

/// RFC 3339's full-time.
RegexId time(RegexStore& store) {
  const RegexId plain = format_pattern(
      store, "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)");
  return store.any_of(plain, leap_time(store));
}

RegexId date_time(RegexStore& store) {
  return store.concat(date(store), store.concat(format_pattern(store, "[Tt]"), time(store)));
}

/// RFC 3339, appendix A.
RegexId duration(RegexStore& store) {
  const std::string time = "T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S)";
  const std::string days = "\\d+D";
  const std::string months = "\\d+M(" + days + ")?";
  const std::string years = "\\d+Y(" + months + ")?";
  return format_pattern(
      store, "P((" + days + "|" + months + "|" + years + ")(" + time + ")?|" + time + "|\\d+W)");
}

/// RFC 4122, section 3.
RegexId uuid(RegexStore& store) {
  return format_pattern(store, "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
}

/// RFC 6570, section 2, with erratum 6937 (the apostrophe is a literal).
RegexId uri_template(RegexStore& store) {
  const std::string percent = "%[0-9A-Fa-f]{2}";
  const std::string points =
      "\\u00A0-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{"
      "3FFFD}"
      "\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}"
      "\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}"
      "\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}\\u{F0000}-\\u{FFFFD}"
      "\\u{100000}-\\u{10FFFD}";
  const std::string literal = "[!#-$&'(-;=?-\\[\\]_a-z~" + points + "]|" + percent;
  const std::string letter = "([A-Za-z0-9_]|" + percent + ")";
  const std::string variable = letter + "(\\.?" + letter + ")*(:[1-9]\\d{0,3}|\\*)?";
  return format_pattern(
      store, "(" + literal + "|\\{[+#./;?&=,!@|]?" + variable + "(," + variable + ")*\\})*");
}

constexpr std::string_view kJsonPointer = "(/([^~/]|~[01])*)*";

RegexId json_pointer(RegexStore& store) { return format_pattern(store, std::string(kJsonPointer)); }

RegexId relative_json_pointer(RegexStore& store) {
  return format_pattern(store, fmt::format("(0|[1-9]\\d*)(#|{})", kJsonPointer));
}

using Maker = RegexId (*)(RegexStore&);

constexpr std::array<std::pair<std::string_view, Maker>, 19> kFormats = {{
    {"date-time", date_time},
    {"date", date},
    {"time", time},
    {"duration", duration},
    {"email", email_format},
    {"idn-email", idn_email_format},
    {"hostname", hostname_format},
    {"idn-hostname", idn_hostname_format},
    {"ipv4", ipv4_format},
    {"ipv6", ipv6_format},
    {"uri", uri_format},
    {"uri-reference", uri_reference_format},
    {"iri", iri_format},
    {"iri-reference", iri_reference_format},
    {"uuid", uuid},
    {"uri-template", uri_template},
    {"json-pointer", json_pointer},
    {"relative-json-pointer", relative_json_pointer},
    {"regex", regex_format},
}};

}  // namespace

std::optional<RegexId> string_format(RegexStore& store, std::string_view name) {
  const auto* const format =
      std::ranges::find(kFormats, name, &std::pair<std::string_view, Maker>::first);
  if (format == kFormats.end()) {
    return std::nullopt;
  }
  return store.named("format " + std::string(name), [&] { return format->second(store); });
}

}  // namespace specdec
