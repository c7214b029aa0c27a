// Any text is either refused with WeightsError, or a tokenizer that encodes a text without losing
// it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "core/tokenizers/bpe_tokenizer.h"

namespace {

// Tokenizers with a prefix space put one after added tokens too.
std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = specdec::bpe_tokenizer(json, "fuzz");
    const std::string text = "aab ab\xFF \n<turn>é  ";
    if (without_spaces(tokenizer->decode(tokenizer->encode(text))) != without_spaces(text)) {
      std::abort();
    }
  } catch (const specdec::WeightsError&) {
    return 0;
  }
  return 0;
}
