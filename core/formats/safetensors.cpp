#include "core/formats/safetensors.h"

#include <utility>

#include "core/formats/safetensors_header.h"

namespace specdec {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : TensorFile(path) {
  std::map<std::string, std::string> metadata;
  set_tensors(parse_safetensors(file_bytes(), path.string(), metadata));
  set_metadata(std::move(metadata));
}

}  // namespace specdec
