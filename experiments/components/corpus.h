#pragma once
#include <string>
#include <vector>

#include "core/types.h"
#include "experiments/components/components.h"

namespace specdec {

/// The texts under `key`, as tokens of the planned target: what drafters look things up in. A list
/// of maps {file: ..., held_out: 0}: a text file is one document; of a .jsonl file each line is
/// one, its `tokens` when it has them (a run's generations.jsonl), else the line as text.
/// `held_out` leaves out the end of a file, cut at a line as training cuts it.
///
/// Mistakes are noted at the nodes: no such file, ids outside the vocabulary, a text without a
/// tokenizer, nothing in it. A missing key is one if `required`.
std::vector<std::vector<Token>> read_corpus(const ConfigNode& node, const std::string& key,
                                            const RunPlan& plan, bool required);

}  // namespace specdec
