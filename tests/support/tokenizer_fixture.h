#pragma once
#include <string>

#include "core/formats/strict_json.h"

namespace specdec {

/// The bytes of a file in tests/data/tokenizer.
inline std::string tokenizer_fixture(const std::string& name) {
  return read_file(std::string(SPECDEC_SOURCE_DIR) + "/tests/data/tokenizer/" + name);
}

}  // namespace specdec
