# cmake -DCLANG=clang++ -DROOT=... -DFOLDER=... -P check_sources.cmake: compiles each flattened .metal source
# as C++ in which the address spaces are real (core/kernels/metal/language), and sees that planted faults
# are found.
cmake_minimum_required(VERSION 3.25)
set(language ${ROOT}/core/kernels/metal/language)

# Compiles a file; `result` is 0 and `message` empty where it is right.
function(compile file result message)
  execute_process(
    COMMAND ${CLANG} -x c++ -std=c++14 -target aarch64-linux-gnu -march=armv8.6-a+bf16 -ffreestanding -nostdinc
            -fsyntax-only -Wall -Wextra -Werror -Wno-c++17-extensions -Wno-unknown-attributes
            -Wno-unknown-pragmas -Wno-unused-function -Wno-unused-const-variable -D__METAL_VERSION__=300 -I${language}
            -I${language}/checked ${file}
    RESULT_VARIABLE code ERROR_VARIABLE errors)
  set(${result} ${code} PARENT_SCOPE)
  set(${message} "${errors}" PARENT_SCOPE)
endfunction()

# What clang does not see: a kernel's arrays are numbered in their order, from 0.
function(check_buffers file result)
  file(READ ${file} text)
  string(REGEX MATCHALL "kernel void|buffer\\([0-9]+\\)" found "${text}")
  set(next 0)
  set(${result} 0 PARENT_SCOPE)
  foreach(one IN LISTS found)
    if(one STREQUAL "kernel void")
      set(next 0)
    elseif(NOT one STREQUAL "buffer(${next})")
      set(${result} 1 PARENT_SCOPE)
    else()
      math(EXPR next "${next} + 1")
    endif()
  endforeach()
endfunction()

file(GLOB sources ${FOLDER}/*.metal)
list(LENGTH sources count)
if(count LESS 10)
  message(SEND_ERROR "${FOLDER}: ${count} sources, build specdec_flat_metal first")
endif()
foreach(source IN LISTS sources)
  compile(${source} code errors)
  check_buffers(${source} misnumbered)
  if(code)
    message(SEND_ERROR "${source}:\n${errors}")
  elseif(misnumbered)
    message(SEND_ERROR "${source}: a kernel's buffers are not numbered 0, 1, ... in their order")
  endif()
endforeach()

# plant(<source> <text> <fault>): the source with a fault in it must be refused.
function(plant source text fault)
  file(READ ${FOLDER}/${source}.metal right)
  string(REPLACE "${text}" "${fault}" wrong "${right}")
  if(wrong STREQUAL right)
    message(SEND_ERROR "${source}.metal has no '${text}' to plant a fault in")
  endif()
  set(file ${FOLDER}/planted/${source}.metal)
  file(WRITE ${file} "${wrong}")
  compile(${file} code errors)
  check_buffers(${file} misnumbered)
  if(NOT code AND NOT misnumbered)
    message(SEND_ERROR "${source}.metal with '${fault}' for '${text}' was not refused")
  endif()
endfunction()
plant(norm "threadgroup float* scratch GROUP_MEMORY" "device float* scratch")
plant(norm "const device float* input [[buffer(0)]]" "const float* input [[buffer(0)]]")
plant(norm "constant mps::NormSizes& sizes" "device mps::NormSizes& sizes [[buffer(3)]], constant float& sizes")
plant(argmax "reinterpret_cast<threadgroup int32_t*>" "reinterpret_cast<device int32_t*>")
plant(attention "const device mps::Kv::Element* keys [[buffer(1)]]" "const device double* keys [[buffer(1)]]")
plant(elementwise "device float* out [[buffer(1)]]" "device float* out [[buffer(2)]]")
message(STATUS "${count} sources are right, 6 planted faults were found")
