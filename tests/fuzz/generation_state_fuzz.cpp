// Any bytes are either refused or a state that can be written and read again. As they are, fuzzed
// bytes never have the right checksum, so they are also read with it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "core/hash.h"
#include "core/snapshot_error.h"
#include "decoders/generation_state.h"

namespace {

/// The bytes between magic and checksum are those of the input.
std::string sealed(std::string_view text) {
  const size_t begin = std::min<size_t>(8, text.size());
  const std::string body = "SPECDEC\n" + std::string(text.substr(begin));
  const uint64_t checksum = specdec::fnv1a(specdec::kHashStart, body.data(), body.size());
  return body + std::string(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
}

void read(const std::string& bytes) {
  try {
    const auto state = specdec::parse_state(std::as_bytes(std::span(bytes)), "fuzz");
    const std::string again = specdec::state_bytes(state);
    const auto second = specdec::parse_state(std::as_bytes(std::span(again)), "fuzz");
    if (specdec::state_bytes(second) != again || second.text() != state.text()) {
      std::abort();
    }
  } catch (const specdec::SnapshotDamagedError&) {
    return;
  } catch (const specdec::SnapshotVersionError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  read(sealed(text));
  if (size > sizeof(uint64_t)) {  // files have a checksum at their end
    read(sealed(std::string_view(text).substr(0, size - sizeof(uint64_t))));
  }
  return 0;
}
