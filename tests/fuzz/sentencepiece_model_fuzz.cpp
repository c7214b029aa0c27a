// Any bytes are either refused with WeightsError, or a tokenizer that encodes a text; SentencePiece
// itself must cope with all that our checks let through.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "core/tokenizers/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = specdec::sentencepiece_tokenizer(bytes, "fuzz");
    for (const specdec::Token token : tokenizer->encode("aab ab\xFF \n<turn>é  ")) {
      if (token < 0 || token >= tokenizer->vocab_size()) {
        std::abort();
      }
    }
  } catch (const specdec::WeightsError&) {
    return 0;
  }
  return 0;
}
