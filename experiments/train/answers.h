#pragma once
#include <functional>
#include <string>

#include "experiments/train/answer_plan.h"

namespace specdec {

/// Takes a line of progress; may be empty.
using LogLine = std::function<void(const std::string&)>;

/// Lets the plan's target answer its prompts, several at a time, and writes them to `plan.out` with
/// the features that heads learn from. Each answer depends on the plan and its prompt's number
/// alone: an interrupted run goes on where it was, and a plan with more prompts adds to what is
/// there. On the device of the plan's target_options, whose cache has room for all rows; each row's
/// next token is chosen by the host. Throws Error when the folder holds answers of another plan,
/// ConfigError for what the device does not do; Interrupted after Ctrl-C.
void make_answers(const AnswerPlan& plan, const LogLine& log = {});

}  // namespace specdec
