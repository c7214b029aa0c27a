#pragma once
#include <optional>
#include <string>

#include "experiments/run/arms.h"

namespace specdec {

/// Whether an answer is right; none where the prompts file names no scorer for it. Throws Error
/// when a program that scores it fails.
std::optional<bool> score_answer(const QualityConfig& config, const Item& item,
                                 const std::string& text);

/// Whether an arm's texts are measured against the target: those of lossy strategies, and of the
/// first one beside them, which must not be lossy itself.
bool measures_loss(const Group& group, const Arm& arm);
/// Whether they are traced too: when a lossy strategy samples. The arm then has a tracer.
bool traces_loss(const Group& group, const Arm& arm);

/// Fills log_prob, and of traced arms bias, of a generation that was made with `request`. One
/// forward over the text, and of traced arms one a token.
void measure_loss(const Group& group, const Arm& arm, const Request& request,
                  GenerationRecord& record);

}  // namespace specdec
