#include "grammar/regex/string_format_names.h"

#include <string>

#include "core/error.h"
#include "grammar/regex/regex_parser.h"
#include "grammar/regex/regex_unicode.h"

namespace specdec {
namespace {

const std::string kIpv4 =  // NOLINT(cert-err58-cpp)
    "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3})";

/// RFC 3986's IPv6address, by the number of groups before and after the "::".
std::string ipv6_pattern() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last = "(" + group + ":" + group + "|" + kIpv4 + ")";  // two groups' worth
  std::string all = "(" + group + ":){6}" + last;
  for (int before = 0; before <= 7; ++before) {
    const int after = 7 - before;  // at most
    std::string head =
        before == 0 ? "" : group + "(:" + group + "){" + std::to_string(before - 1) + "}";
    head += "::";
    all += "|" + head;
    if (after >= 1) {
      all += "|" + head + group;
    }
    if (after >= 2) {
      all += "|" + head + "(" + group + ":){0," + std::to_string(after - 2) + "}" + last;
    }
  }
  return "(" + all + ")";
}

/// Points of one code point, and the dash: neither first nor last, and no dashes as third and
/// fourth characters.
RegexId label(RegexStore& store, const std::string& points, int longest) {
  const std::string dash = "(" + points + "|-)";
  return format_pattern(store, "(?!..--)" + points + "(" + dash + "{0," +
                                   std::to_string(longest - 2) + "}" + points + ")?");
}

RegexId any(RegexStore& store, uint64_t min, uint64_t max) {
  return store.repeat(store.one_of(CodePoints::all()), min, max);
}

/// Labels between separators.
RegexId dotted(RegexStore& store, RegexId label, const CodePoints& dots,
               std::optional<uint64_t> max_more) {
  const RegexId more = store.concat(store.one_of(dots), label);
  return store.concat(label, store.repeat(more, 0, max_more));
}

RegexId host_with(RegexStore& store, const CodePoints& dots) {
  const RegexId name = label(store, "[0-9A-Za-z]", 63);
  return store.all_of(dotted(store, name, dots, std::nullopt), any(store, 1, 253));
}

/// Letters that RFC 5892 has as PVALID whatever is beside them; a part of those.
CodePoints international_letters() {
  const auto property = [](const char* name) {
    const auto points = unicode_property(name);
    SPECDEC_CHECK(points.has_value(), "ICU lacks {}", name);
    return *points;
  };
  CodePoints letters = property("Ll").unite(property("Lo"));
  letters = letters.intersect(property("Bidi_Class=L"));
  letters = letters.intersect(property("NFC_Quick_Check=Yes"));
  letters = letters.intersect(property("Changes_When_NFKC_Casefolded").complement());
  letters = letters.intersect(property("Hangul_Syllable_Type=L").complement());
  letters = letters.intersect(property("Hangul_Syllable_Type=V").complement());
  letters = letters.intersect(property("Hangul_Syllable_Type=T").complement());
  return letters.intersect(CodePoints({{0x80, CodePoints::kLast}}));
}

/// Three labels of 63 octets with dots are 191 octets: within the limit of 253.
RegexId idn_host_with(RegexStore& store, const CodePoints& dots) {
  const CodePoints edge = international_letters().unite(CodePoints({{'0', '9'}, {'a', 'z'}}));
  const RegexId first = store.one_of(edge);
  const RegexId middle = store.repeat(store.one_of(edge.unite(CodePoints({{'-', '-'}}))), 0, 6);
  const RegexId letters = store.concat(first, store.repeat(store.concat(middle, first), 0, 1));
  const RegexId reserved = format_pattern(store, "[^]{2}--[^]*");
  const RegexId international = store.all_of(letters, store.complement(reserved));
  const RegexId ascii = label(store, "[0-9A-Za-z]", 63);
  return store.any_of(host_with(store, dots),
                      dotted(store, store.any_of(international, ascii), dots, 2));
}

RegexId mailbox(RegexStore& store, const std::string& more, RegexId domain) {
  const std::string atom = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~" + more + "-]+";
  const std::string quoted = "\"([ !#-\\[\\]-~" + more + "]|\\\\[ -~])*\"";
  const RegexId local = format_pattern(store, atom + "(\\." + atom + ")*|" + quoted);
  const RegexId ascii = store.repeat(store.one_of(CodePoints({{0, 0x7F}})), 1, 64);
  const RegexId octets = store.any_of(ascii, any(store, 1, 16));  // at most 64
  const RegexId address =
      format_pattern(store, "\\[(" + kIpv4 + "|(?i:IPv6:)" + ipv6_pattern() + ")\\]");
  const RegexId at = store.concat(store.literal(U"@"), store.any_of(domain, address));
  return store.concat(store.all_of(local, octets), at);
}

/// RFC 3986 and RFC 3987 differ by the characters allowed everywhere and in queries.
std::string resource(const std::string& more, const std::string& more_in_query, bool relative) {
  const std::string percent = "%[0-9A-Fa-f]{2}";
  const std::string plain = "A-Za-z0-9._~!$&'()*+,;=" + more;  // unreserved and sub-delims
  const std::string user = "([" + plain + ":-]|" + percent + ")*@";
  const std::string future = "[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+";
  const std::string host =
      "(\\[(" + ipv6_pattern() + "|" + future + ")\\]|([" + plain + "-]|" + percent + ")*)";
  const std::string authority = "(" + user + ")?" + host + "(:\\d*)?";
  const std::string point = "([" + plain + ":@-]|" + percent + ")";
  const std::string point_no_colon = "([" + plain + "@-]|" + percent + ")";
  const std::string segments = "(/" + point + "*)*";
  const std::string rooted = "//" + authority + segments + "|/(" + point + "+" + segments + ")?";
  const std::string tail = "(\\?([" + plain + more_in_query + ":@/?-]|" + percent + ")*)?" +
                           "(#([" + plain + ":@/?-]|" + percent + ")*)?";
  const std::string absolute =
      "[A-Za-z][A-Za-z0-9+.-]*:(" + rooted + "|" + point + "+" + segments + "|)" + tail;
  if (!relative) {
    return absolute;
  }
  return absolute + "|(" + rooted + "|" + point_no_colon + "+" + segments + "|)" + tail;
}

/// ucschar of RFC 3987.
const char* const kInternational =
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}"
    "\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}"
    "\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}";
/// iprivate of RFC 3987.
const char* const kPrivate = "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";

}  // namespace

RegexId format_pattern(RegexStore& store, const std::string& text) {
  return parse_regex(store, text, false);
}

RegexId ipv4_format(RegexStore& store) { return format_pattern(store, kIpv4); }

RegexId ipv6_format(RegexStore& store) { return format_pattern(store, ipv6_pattern()); }

RegexId hostname_format(RegexStore& store) { return host_with(store, CodePoints({{'.', '.'}})); }

RegexId idn_hostname_format(RegexStore& store) {
  return idn_host_with(
      store, CodePoints({{'.', '.'}, {0x3002, 0x3002}, {0xFF0E, 0xFF0E}, {0xFF61, 0xFF61}}));
}

RegexId email_format(RegexStore& store) { return mailbox(store, "", hostname_format(store)); }

RegexId idn_email_format(RegexStore& store) {
  return mailbox(store, "\\u0080-\\u{10FFFF}", idn_host_with(store, CodePoints({{'.', '.'}})));
}

RegexId uri_format(RegexStore& store) { return format_pattern(store, resource("", "", false)); }

RegexId uri_reference_format(RegexStore& store) {
  return format_pattern(store, resource("", "", true));
}

RegexId iri_format(RegexStore& store) {
  return format_pattern(store, resource(kInternational, kPrivate, false));
}

RegexId iri_reference_format(RegexStore& store) {
  return format_pattern(store, resource(kInternational, kPrivate, true));
}

}  // namespace specdec
