// Any text is either refused with WeightsError, or a config whose own text is read back as the
// same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "core/families/gemma/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string written;
  try {
    written = specdec::parse_gemma_config(text, "fuzz").text;
  } catch (const specdec::WeightsError&) {
    return 0;
  }
  if (specdec::parse_gemma_config(written, "written").text != written) {
    std::abort();
  }
  return 0;
}
