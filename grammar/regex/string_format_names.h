#pragma once
#include <string>

#include "grammar/regex/regex.h"

namespace specdec {

// The string formats that name hosts, mailboxes and resources; see string_format.

/// The texts that match `text`, an expression of ECMA-262, from their beginning to their end.
RegexId format_pattern(RegexStore& store, const std::string& text);

RegexId ipv4_format(RegexStore& store);  ///< RFC 2673, section 3.2
RegexId ipv6_format(RegexStore& store);  ///< RFC 4291, section 2.2, without zones

/// RFC 1123, section 2.1. Labels with "--" as third and fourth characters are left out: they are
/// A-labels (RFC 5891, section 4.2.3.1), of which few are valid, and these are no regular language.
RegexId hostname_format(RegexStore& store);

/// A part of RFC 5890's names, none of it wrong: host names, and names of up to three labels of
/// which some have letters beyond ASCII: lower case or without case, written from left to right,
/// not changed by normalisation, at most 8 code points a label (so that the A-label is short
/// enough). Marks, other digits, letters written from right to left and the contextual rules of RFC
/// 5892 are left out.
RegexId idn_hostname_format(RegexStore& store);

/// RFC 5321's Mailbox: at most 64 octets before the '@'; the domain as hostname_format or an IP
/// address in brackets.
RegexId email_format(RegexStore& store);
/// RFC 6531's; the local part at most 16 code points when some are not ASCII, the domain as
/// idn_hostname_format.
RegexId idn_email_format(RegexStore& store);

RegexId uri_format(RegexStore& store);            ///< RFC 3986, section 3
RegexId uri_reference_format(RegexStore& store);  ///< RFC 3986, section 4.1
RegexId iri_format(RegexStore& store);            ///< RFC 3987, section 2.2
RegexId iri_reference_format(RegexStore& store);  ///< RFC 3987, section 2.2

}  // namespace specdec
