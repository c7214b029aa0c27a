#include "grammar/schema/uri.h"

#include <string>
#include <string_view>
#include <vector>

namespace specdec {
namespace {

/// The five parts of a URI (RFC 3986, appendix B); `has_` tells an empty part from none.
struct Uri {
  std::string scheme, authority, path, query, fragment;
  bool has_authority = false;
  bool has_query = false;
  bool has_fragment = false;
};

bool is_scheme(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return !text.empty() && kLetters.find(text.front()) != std::string_view::npos &&
         text.find_first_not_of(std::string(kLetters) + "0123456789+-.") == std::string_view::npos;
}

Uri split(std::string_view text) {
  Uri uri;
  const size_t hash = text.find('#');
  if (hash != std::string_view::npos) {
    uri.has_fragment = true;
    uri.fragment = text.substr(hash + 1);
    text = text.substr(0, hash);
  }
  const size_t question = text.find('?');
  if (question != std::string_view::npos) {
    uri.has_query = true;
    uri.query = text.substr(question + 1);
    text = text.substr(0, question);
  }
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos && is_scheme(text.substr(0, colon))) {
    uri.scheme = text.substr(0, colon);
    text = text.substr(colon + 1);
  }
  if (text.starts_with("//")) {
    uri.has_authority = true;
    const size_t slash = text.find('/', 2);
    uri.authority = text.substr(2, slash == std::string_view::npos ? slash : slash - 2);
    text = slash == std::string_view::npos ? std::string_view() : text.substr(slash);
  }
  uri.path = text;
  return uri;
}

std::string join(const Uri& uri) {
  std::string text = uri.scheme.empty() ? "" : uri.scheme + ":";
  text += uri.has_authority ? "//" + uri.authority : "";
  text += uri.path;
  text += uri.has_query ? "?" + uri.query : "";
  text += uri.has_fragment ? "#" + uri.fragment : "";
  return text;
}

/// Section 5.2.4: "." and ".." taken out.
std::string remove_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  const bool absolute = path.starts_with('/');
  path.remove_prefix(absolute ? 1 : 0);
  bool folder = false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    folder = part == "." || part == "..";
    if (part == ".." && !kept.empty()) {
      kept.pop_back();
    } else if (!folder) {
      kept.push_back(part);
    }
    if (slash == std::string_view::npos) {
      break;
    }
    path.remove_prefix(slash + 1);
  }
  std::string result = absolute ? "/" : "";
  for (size_t i = 0; i < kept.size(); ++i) {
    result += std::string(i == 0 ? "" : "/") + std::string(kept[i]);
  }
  return result + (folder && !kept.empty() ? "/" : "");
}

int hex_digit(char c) {
  return c >= '0' && c <= '9'                     ? c - '0'
         : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                  : -1;
}

}  // namespace

std::string resolve_uri(const std::string& base_text, const std::string& reference) {
  const Uri base = split(base_text);
  Uri uri = split(reference);
  if (!uri.scheme.empty()) {
    uri.path = uri.has_authority ? remove_dots(uri.path) : uri.path;
    return join(uri);
  }
  uri.scheme = base.scheme;
  if (uri.has_authority) {
    uri.path = remove_dots(uri.path);
    return join(uri);
  }
  uri.authority = base.authority;
  uri.has_authority = base.has_authority;
  if (uri.path.empty()) {
    uri.path = base.path;
    if (!uri.has_query) {
      uri.query = base.query;
      uri.has_query = base.has_query;
    }
    return join(uri);
  }
  if (!uri.path.starts_with('/')) {
    const size_t slash = base.path.rfind('/');
    const std::string folder = slash == std::string::npos ? (base.has_authority ? "/" : "")
                                                          : base.path.substr(0, slash + 1);
    uri.path = folder + uri.path;
  }
  uri.path = remove_dots(uri.path);
  return join(uri);
}

std::string without_fragment(std::string_view uri) {
  return std::string(uri.substr(0, uri.find('#')));
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace specdec
