# scripts/train_eagle3, stopped in its stages and run again, on the shipped target.
# cmake -D SPECDEC=... -D SOURCE=... -D WORK=... -P train_eagle3.cmake
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(out "eagle #2")  # what YAML would take for a comment; found from the folder that the script is called in
set(script "${SOURCE}/scripts/train_eagle3")
set(ENV{OMP_NUM_THREADS} 1)
set(all gemma3 --target "${SOURCE}/models/target" --layers 1,3,5 --out "${out}" --program "${SPECDEC}" --prompts 120
        --steps 80 --questions 1 --new-tokens 8 --set head.draft_vocab_size=512 --set warm_up_steps=1
        --set evaluate_every=80 --set checkpoint_every=4 --set batch_size=2 --set held_out=0.2
        --answers-set text_tokens=[8,16] --answers-set max_answer_tokens=32)

function(check code pattern)
  if(NOT result EQUAL code OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "train_eagle3 ${ARGN}\nended with ${result}, not ${code}, or wrote something else "
                        "than '${pattern}':\n${output}")
  endif()
endfunction()

# run(<exit code> <pattern> <argument>...): the script must end so, and write what matches the pattern.
function(run code pattern)
  execute_process(COMMAND ${script} ${ARGN} WORKING_DIRECTORY "${WORK}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  check(${code} "${pattern}" ${ARGN})
endfunction()

# stop(<stage> <file> <argument>...): the script is killed once the file is there and not empty; it must say so.
function(stop stage file)
  execute_process(COMMAND sh -c [[file=$1; shift; "$@" & pid=$!
                                  while kill -0 $pid && ! test -s "$file"; do sleep 0.02; done
                                  kill $pid; wait $pid]] sh "${out}/${file}" ${script} ${ARGN}
                  WORKING_DIRECTORY "${WORK}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  check(130 "stopped in the stage '${stage}'; the same command goes on" ${ARGN})
endfunction()

run(2 "no_model: is not there" gemma3 --target no_model)
run(2 "--minutes 0.3: should be more than" ${all} --minutes 0.3)
stop(answers answers/answers.jsonl ${all} --rows 1)
file(READ "${WORK}/${out}/answers/answers.jsonl" first_answers)
stop(training head/training.state ${all})
file(READ "${WORK}/${out}/answers/answers.jsonl" answers)
string(FIND "${answers}" "${first_answers}" place)
string(LENGTH "${answers}" length)
string(LENGTH "${first_answers}" first_length)
if(NOT place EQUAL 0 OR NOT length GREATER first_length)
  message(FATAL_ERROR "the answers that were there did not stay, or were all:\n${first_answers}")
endif()
run(0 "steps [1-9][0-9]* to 80.*eagle3_2 +speedup [0-9.]+ +tokens_per_step [0-9.]+ +acceptance_rate" ${all})
run(0 "^autoregressive" ${all})  # all is done
run(2 "other settings .new_tokens: 8 there, 9 now." ${all} --new-tokens 9)
