# Installs the build tree to a fresh folder, builds the outside project docs/examples/ against it, and
# runs it.
# cmake -D BUILD=... -D SOURCE=... -D WORK=... -D TORCH=... -D COMPILER=... -D BUILD_TYPE=... -P run.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${SOURCE}" RESULT_VARIABLE failed OUTPUT_VARIABLE output
                  ERROR_VARIABLE errors)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nfailed (${failed}):\n${output}\n${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
  set(errors "${errors}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
run(${CMAKE_COMMAND} -S "${SOURCE}/docs/examples" -B "${WORK}/build" -G Ninja
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix\\;${TORCH}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
    "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG")
if(errors MATCHES "runtime search path")
  message(FATAL_ERROR "two libraries of one name are linked:\n${errors}")
endif()
run(${CMAKE_COMMAND} --build "${WORK}/build")

set(program "${WORK}/build/my_specdec")
run("${program}" list)
foreach(help "bigram +what followed each token the last time" "leviathan +speculative sampling of chains"
             "comb +a chain with side leaves" "last_run +one more than were accepted")
  if(NOT output MATCHES "${help}")
    message(FATAL_ERROR "'list' does not name an outside component (${help}):\n${output}")
  endif()
endforeach()

run("${program}" list counting)
if(NOT output MATCHES "prior +0.1 +1e-06 to 1000000")
  message(FATAL_ERROR "'list counting' does not explain its option:\n${output}")
endif()

set(generate "${program}" generate "${SOURCE}/tests/data/gemma3-a" --tokens 2,5,7,5,7,5
    --max-new-tokens 24 --ignore-eos --quiet)
run(${generate})
set(plain "${output}")
foreach(parts "drafter: {type: bigram}, draft_length: 4"
              "drafter: {type: bigram}, draft_length: {type: last_run, max: 4}"
              "drafter: {type: counting}, draft_length: {type: last_run, max: 4}, verifier: {type: leviathan}"
              "drafter: {type: counting}, tree: {type: static, widths: [2, 2]}"
              "drafter: {type: counting}, tree: {type: dynamic, nodes: 5, depth: 3}"
              "drafter: {type: counting}, tree: {type: comb, depth: 3, width: 2}"
              "drafter: {type: patient, rest: 1, drafter: bigram}, draft_length: 4"
              "drafter: nearest_state, draft_length: 3")
  run(${generate} --strategy "{type: speculative, ${parts}}")
  if(NOT output STREQUAL plain)
    message(FATAL_ERROR "${parts}: greedy output changed:\n${plain}\n${output}")
  endif()
  run(${generate} --json --strategy "{type: speculative, ${parts}}")
  string(JSON drafted GET "${output}" statistics drafted)
  if(drafted LESS 1)
    message(FATAL_ERROR "${parts}: nothing was drafted:\n${output}")
  endif()
endforeach()

run(${generate} --temperature 1 --strategy "{type: likeliest_pair, width: 3}" --json)
string(JSON steps GET "${output}" statistics steps)
string(JSON tokens LENGTH "${output}" tokens)
if(NOT tokens EQUAL 24 OR steps GREATER 13)
  message(FATAL_ERROR "likeliest_pair should commit two tokens a step:\n${output}")
endif()

set(rule "type: no_repeat_ngram, n: 2, strategy")
run(${generate} --strategy "{${rule}: {type: autoregressive}}")
set(ruled "${output}")
run(${generate} --strategy "{${rule}: {type: speculative, drafter: {type: bigram}, draft_length: 4}}")
if(NOT output STREQUAL ruled OR output STREQUAL plain)
  message(FATAL_ERROR "no_repeat_ngram: plain\n${plain}\nunder the rule\n${ruled}\nwith drafts\n${output}")
endif()

# The first three combine with the tree and the draft length too.
run("${program}" certify bigram counting leviathan no_repeat_ngram --seeds 1)
if(NOT output MATCHES "PASSED.* 0 broken, 0 components untested")
  message(FATAL_ERROR "the outside components are not lossless:\n${output}")
endif()
run("${program}" check docs/examples/mine.yaml)
run("${WORK}/prefix/bin/specdec" --version)

run("${WORK}/build/embed_texts" "${SOURCE}/tests/data/embeddinggemma-a" hello "a naïve café" hello)
if(NOT output MATCHES "hello\n.* a naïve café\n")
  message(FATAL_ERROR "a text should be more similar to itself than another one:\n${output}")
endif()

run("${WORK}/build/resume_text" "${SOURCE}/tests/data/gemma3-a" "${WORK}/text.state")
if(NOT output MATCHES "the same 16 tokens")
  message(FATAL_ERROR "a generation that was saved should go on with the same tokens:\n${output}")
endif()

run("${WORK}/build/steer_layers" "${SOURCE}/tests/data/gemma3-a")
if(NOT output MATCHES "^[1-9][0-9]* layers, other logits\n")
  message(FATAL_ERROR "a vector that is added to the stream should change the logits:\n${output}")
endif()

run("${WORK}/build/forward_parts" "${SOURCE}/tests/data/gemma3-a")
if(NOT output STREQUAL "all parts fit the whole\n")
  message(FATAL_ERROR "the parts of a forward should fit the whole:\n${output}")
endif()

run("${WORK}/build/own_tensors")
if(NOT output MATCHES "^8 tokens:( [0-9]+)+\n")
  message(FATAL_ERROR "a model of tensors in memory should generate:\n${output}")
endif()

# Another one, which has the grammars alone and does not see LibTorch.
run(${CMAKE_COMMAND} -S "${SOURCE}/tests/package/grammar_program" -B "${WORK}/grammar" -G Ninja
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}")
run(${CMAKE_COMMAND} --build "${WORK}/grammar")
run("${WORK}/grammar/grammar_program" "${SOURCE}/models/target")
if(NOT output MATCHES "tokens, forced: \\[1?\ntoken -1 is outside the vocabulary of 2048 tokens\n")
  message(FATAL_ERROR "the outside program of grammars says:\n${output}")
endif()
