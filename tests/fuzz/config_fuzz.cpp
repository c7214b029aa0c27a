// Any text is either refused with WeightsError, or a config whose own text is read back as the
// same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "core/families/gemma/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  specdec::GemmaConfig config;
  try {
    config = specdec::parse_gemma_config(text, "fuzz");
  } catch (const specdec::WeightsError&) {
    return 0;
  }
  const std::string written = specdec::gemma_config_json(config);
  if (specdec::gemma_config_json(specdec::parse_gemma_config(written, "written")) != written) {
    std::abort();
  }
  return 0;
}
