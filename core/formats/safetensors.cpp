#include "core/formats/safetensors.h"

#include "core/formats/safetensors_header.h"

namespace specdec {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : TensorFile(path) {
  set_tensors(parse_safetensors(file_bytes(), path.string(), metadata_));
}

}  // namespace specdec
