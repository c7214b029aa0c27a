#pragma once
#include "experiments/train/answer_plan.h"
#include "experiments/train/trainer.h"

namespace specdec {

/// Lets the plan's target answer its prompts, several at a time, and writes them to `plan.out` with
/// the features that heads learn from. Each answer depends on the plan and its prompt's number
/// alone: an interrupted run goes on where it was, and a plan with more prompts adds to what is
/// there. Throws Error when the folder holds answers of another plan; Interrupted after Ctrl-C.
void make_answers(const AnswerPlan& plan, const TrainOptions& options);

}  // namespace specdec
