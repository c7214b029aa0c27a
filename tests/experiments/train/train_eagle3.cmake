# scripts/train_eagle3, stopped and run again, on the shipped target.
# cmake -D SPECDEC=... -D SOURCE=... -D WORK=... -P train_eagle3.cmake
cmake_minimum_required(VERSION 3.25)

# run(<exit code> <pattern> <argument>...): the script must end so, and write what matches the pattern.
function(run code pattern)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env OMP_NUM_THREADS=1 "${SOURCE}/scripts/train_eagle3" ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL code OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "train_eagle3 ${ARGN}\nended with ${result}, not ${code}, or wrote something else "
                        "than '${pattern}':\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
set(all gemma3 --target models/target --layers 1,3,5 --out "${WORK}" --program "${SPECDEC}" --prompts 24 --steps 4
        --questions 1 --new-tokens 8 --set head.draft_vocab_size=512 --set warm_up_steps=1 --set evaluate_every=2
        --set batch_size=2 --set held_out=0.2 --answers-set text_tokens=[8,16] --answers-set max_answer_tokens=16)
run(1 "no_model: is not there" gemma3 --target no_model)
run(130 "stopped in the stage 'answers'; the same command goes on" ${all} --minutes 0.337)  # 0.2 s, and 20 to stop
run(0 "steps 0 to 4.*eagle3_2 +speedup [0-9.]+ +tokens_per_step [0-9.]+ +acceptance_rate" ${all})
run(0 "^autoregressive" ${all})
