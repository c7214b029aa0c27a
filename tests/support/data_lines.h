#pragma once
#include <zlib.h>

#include <array>
#include <sstream>
#include <string>
#include <vector>

namespace specdec {

/// The lines of a file, which may be compressed by gzip; none where it is missing.
inline std::vector<std::string> data_lines(const std::string& path) {
  std::string text;
  if (gzFile_s* file = gzopen(path.c_str(), "rb")) {  // it also reads what is not compressed
    std::array<char, 1 << 16> part{};
    for (int size = 0; (size = gzread(file, part.data(), part.size())) > 0;) {
      text.append(part.data(), static_cast<size_t>(size));
    }
    gzclose(file);
  }
  std::istringstream file(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace specdec
