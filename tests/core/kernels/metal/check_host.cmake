# cmake -DCLANG=clang++ -DROOT=... -DTORCH=... -DFOLDER=... -P check_host.cmake: checks the syntax and types of
# metal_queue.mm, with apple/ for Apple's headers and PyTorch's own torch/mps.h, and sees that a planted
# fault is found.
cmake_minimum_required(VERSION 3.25)
set(host ${ROOT}/core/kernels/metal/metal_queue.mm)

function(compile file result message)
  execute_process(
    COMMAND ${CLANG} -x objective-c++ -std=c++20 -fsyntax-only -fobjc-runtime=macosx -fobjc-arc -fblocks
            -Wall -Wextra -Werror -DFMT_HEADER_ONLY -I${ROOT} -I${CMAKE_CURRENT_LIST_DIR}/apple -isystem ${TORCH}
            -isystem ${TORCH}/torch/csrc/api/include ${file}
    RESULT_VARIABLE code ERROR_VARIABLE errors)
  set(${result} ${code} PARENT_SCOPE)
  set(${message} "${errors}" PARENT_SCOPE)
endfunction()

compile(${host} code errors)
if(code)
  message(SEND_ERROR "${host}:\n${errors}")
endif()
file(STRINGS ${host} lines)
list(LENGTH lines count)
if(count GREATER 250)
  message(SEND_ERROR "${host} has more than 250 lines")
endif()

file(READ ${host} text)
string(REPLACE "offset:static_cast<NSUInteger>(first)" "from:static_cast<NSUInteger>(first)" wrong "${text}")
file(WRITE ${FOLDER}/planted/metal_queue.mm "${wrong}")
compile(${FOLDER}/planted/metal_queue.mm code errors)
if(wrong STREQUAL text OR NOT code)
  message(SEND_ERROR "a call of a method that does not exist was not refused")
endif()
