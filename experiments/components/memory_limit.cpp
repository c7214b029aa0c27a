#include "experiments/components/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

constexpr std::pair<const char*, double> kByteUnits[] = {
    {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
constexpr double kMostBytes = 0x1p60;

}  // namespace

int64_t parse_bytes(const std::string& text) {
  double number = 0.0;
  const auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  for (const auto& [name, bytes] : kByteUnits) {
    if (failure == std::errc() && unit == name && number > 0.0 && number * bytes < kMostBytes) {
      return std::max<int64_t>(std::llround(number * bytes), 1);
    }
  }
  throw ConfigError(
      fmt::format("'{}' is no amount of memory: give a number above 0 and a unit, such as 8GB, "
                  "0.5GB or 512MiB (kB, MB, GB, TB: powers of 1000; KiB, MiB, GiB, TiB: of 1024)",
                  text));
}

MemoryLimit parse_memory_limit(const std::string& limit, const std::string& layer_file) {
  require_config(!limit.empty() || layer_file.empty(),
                 "the layer file holds layers that a memory limit leaves on disk, and there is no "
                 "limit: give one, or leave out the file");
  return {.bytes = limit.empty() ? 0 : parse_bytes(limit), .layer_file = layer_file};
}

MemoryLimit read_memory_limit(const ConfigNode& model) {
  const auto limit = model.get<std::string>("memory_limit", "");
  const auto file = model.output_path("layer_file").string();
  MemoryLimit read;
  note_error(model, limit.empty() ? "layer_file" : "memory_limit",
             [&] { read = parse_memory_limit(limit, file); });
  return read;
}

std::string disk_text(const TransformerWeights& weights) {
  int64_t layers = 0;
  int64_t bytes = 0;
  for (const LayerWeights& layer : weights.layers) {
    if (layer.in_source >= 0) {
      ++layers;
      visit_matrices(layer, [&bytes](const Linear& matrix) { bytes += matrix.bytes(); });
    }
  }
  return layers == 0 ? std::string()
                     : fmt::format("{} of {} layers are read from disk, {:.1f} MB for each forward",
                                   layers, weights.layers.size(), static_cast<double>(bytes) / 1e6);
}

}  // namespace specdec
