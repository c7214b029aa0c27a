# Installs the build tree to a fresh folder, builds the outside project against it, and runs it.
# cmake -D BUILD=... -D SOURCE=... -D WORK=... -D TORCH=... -D COMPILER=... -D BUILD_TYPE=... -P run.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output
                  ERROR_VARIABLE errors)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nfailed (${failed}):\n${output}\n${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
run(${CMAKE_COMMAND} -S "${SOURCE}/tests/package" -B "${WORK}/build" -G Ninja
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix\\;${TORCH}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}")
run(${CMAKE_COMMAND} --build "${WORK}/build")

set(program "${WORK}/build/bigram_specdec")
run("${program}" list)
if(NOT output MATCHES "bigram +what followed the token last time")
  message(FATAL_ERROR "'list' does not name the outside drafter:\n${output}")
endif()

set(generate "${program}" generate "${SOURCE}/tests/data/gemma3-a" --tokens 2,5,7,5,7,5
    --max-new-tokens 24 --ignore-eos --quiet)
run(${generate})
set(plain "${output}")
run(${generate} --strategy "{type: speculative, drafter: {type: bigram, longest: 4}}")
if(NOT output STREQUAL plain)
  message(FATAL_ERROR "the outside drafter changed greedy output:\n${plain}\n${output}")
endif()
run(${generate} --json --strategy "{type: speculative, drafter: {type: bigram}}")
string(JSON drafted GET "${output}" statistics drafted)
if(drafted LESS 1)
  message(FATAL_ERROR "the outside drafter proposed nothing:\n${output}")
endif()
run("${WORK}/prefix/bin/specdec" --version)
