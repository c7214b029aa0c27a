#pragma once
#include <string>
#include <vector>

#include "core/sampling.h"
#include "experiments/components/model_files.h"
#include "experiments/config/config_node.h"

namespace specdec {

/// The keys temperature, top_k, top_p, min_p, repetition_penalty, logit_bias. The target's files
/// say which tokens a bias may name; nullptr where they cannot be read.
SamplingParams read_sampling(const ConfigNode& node, const ModelFiles* target);

/// Names of those that are set and change nothing at temperature 0: top_k, top_p and min_p, each
/// after `prefix` and with `dash` for '_'. Empty at any other temperature.
std::vector<std::string> unused_sampling(const SamplingParams& sampling, const std::string& prefix,
                                         char dash = '_');

/// A token by its id, or by a text that is this one token. Throws ConfigError for others.
Token read_token(const std::string& text, const ModelFiles& target);

/// Adds a bias that is written as TOKEN=NUMBER, the token as for read_token, the number perhaps
/// -inf. Throws ConfigError for other texts, and for a token that has a bias already.
void add_logit_bias(const std::string& text, const ModelFiles& target, SamplingParams& sampling);

}  // namespace specdec
