#pragma once

namespace specdec {

class JsonKeys;

/// Refuses what no family reads and what would change the model if it were left out: quantised
/// safetensors but those of the methods that core/formats/quantised/compression_scheme.h reads, and
/// rotations of a part of each head. Throws WeightsError naming the key.
void refuse_unsupported_keys(const JsonKeys& keys);

}  // namespace specdec
