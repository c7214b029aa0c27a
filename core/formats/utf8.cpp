#include "core/formats/utf8.h"

namespace specdec {
namespace {

// Length of the character that a lead byte opens, and the bytes allowed after it: the second byte's
// range excludes overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  size_t bytes = 0;  // 0 = not a lead byte
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) {
    return {.bytes = 1};
  }
  if (byte < 0xC2 || byte > 0xF4) {
    return {};
  }
  if (byte < 0xE0) {
    return {.bytes = 2};
  }
  if (byte < 0xF0) {
    return {.bytes = 3,
            .second_low = static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            .second_high = static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  }
  return {.bytes = 4,
          .second_low = static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
          .second_high = static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
}

}  // namespace

Utf8Scan scan_utf8(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.bytes == 0) {
    return {.bytes = 1};
  }
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) {
      return {.bytes = i, .valid = false, .prefix = true};
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) {
      return {.bytes = i};
    }
  }
  return {.bytes = lead.bytes, .valid = true};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Scan scan = scan_utf8(text);
    if (!scan.valid) {
      return false;
    }
    text.remove_prefix(scan.bytes);
  }
  return true;
}

std::vector<Utf8Run> utf8_runs(std::string_view text) {
  std::vector<Utf8Run> runs;
  size_t begin = 0;
  bool valid = true;
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Scan scan = scan_utf8(text.substr(at));
    if (scan.valid != valid) {
      if (at > begin) {
        runs.push_back({text.substr(begin, at - begin), valid});
      }
      begin = at;
      valid = scan.valid;
    }
    at += scan.bytes;
  }
  if (at > begin) {
    runs.push_back({text.substr(begin), valid});
  }
  return runs;
}

}  // namespace specdec
