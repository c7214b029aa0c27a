# The two programs of the command line: `specdec` runs grammars without LibTorch, and everything else
# by the program beside it.
# cmake -D SPECDEC=... -D SOURCE=... -D WORK=... -P programs.cmake
cmake_minimum_required(VERSION 3.25)

# run(<exit code> <pattern> <word>...): a command must end so, and write what matches the pattern.
function(run code pattern)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL code OR NOT output MATCHES "${pattern}")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${result}, not ${code}, or wrote something else "
                        "than '${pattern}':\n${output}")
  endif()
endfunction()

set(generate generate "${SOURCE}/tests/data/gemma3-a" --tokens 2,5,7 --max-new-tokens 2 --quiet)
run(0 "^specdec [0-9.]+\n$" "${SPECDEC}" --version)
run(0 "^specdec [0-9.]+\n$" "${SPECDEC}" grammar --version)
run(0 "Usage: specdec grammar test" "${SPECDEC}" grammar test --help)
run(0 "Usage: specdec grammar test" "${SPECDEC}" --quiet grammar test --help)
run(0 "." "${SPECDEC}" ${generate})
run(2 "error: nothing.json" "${SPECDEC}" grammar explain nothing.json --tokenizer nothing)

execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_TRACE_LOADED_OBJECTS=1 "${SPECDEC}"
                OUTPUT_VARIABLE libraries)
if(NOT libraries MATCHES "libsentencepiece" OR libraries MATCHES "libtorch|libc10")
  message(FATAL_ERROR "specdec should load no LibTorch:\n${libraries}")
endif()

file(REMOVE_RECURSE "${WORK}")
file(COPY "${SPECDEC}" DESTINATION "${WORK}")
run(2 "specdec-models: No such file.*build or install both" "${WORK}/specdec" list)
