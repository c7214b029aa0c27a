#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/formats/pickle_value.h"

namespace specdec {

/// The tensors of the dictionary that torch.save has written (data.pkl of its archive), in its
/// order. Nothing is run: of the pickle's calls only those that make tensors, parameters and
/// dictionaries are known (torch/_utils.py, Python's pickletools for the format). Throws
/// WeightsError, which names `where` and what was found, for other objects, for a dictionary that
/// holds anything but tensors, and for damaged files.
std::vector<PickledTensor> read_pickled_tensors(std::span<const std::byte> code,
                                                const std::string& where);

}  // namespace specdec
