#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/formats/pickle/pickle_value.h"

namespace specdec {

/// What a dictionary holds, in its order.
struct PickledTensors {
  std::vector<PickledTensor> tensors;
  /// Metadata, by name, that pickle::flatten writes of tensors that torchao makes of others.
  std::map<std::string, std::string> metadata;
};

/// The tensors of the dictionary that torch.save has written (data.pkl of its archive). Nothing is
/// run: of the pickle's calls only those that make tensors, parameters, dictionaries and torchao's
/// objects are known (torch/_utils.py, Python's pickletools for the format). Throws WeightsError,
/// which names `where` and what was found, for other objects, for a dictionary that holds anything
/// but tensors, and for damaged files.
PickledTensors read_pickled_tensors(std::span<const std::byte> code, const std::string& where);

}  // namespace specdec
