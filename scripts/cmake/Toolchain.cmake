# Language standards, warnings, sanitizers, CUDA, ccache: settings of every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Batches share what a source spends most of its time on: LibTorch's and the standard library's
# templates. So names of a target's unnamed namespaces are unique.
set(CMAKE_UNITY_BUILD ${SPECDEC_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12 CACHE STRING "Sources of a batch: more take less time in all, and more after a change")

find_program(SPECDEC_CCACHE ccache)
if(SPECDEC_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${SPECDEC_CCACHE})
endif()

if(SPECDEC_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "SPECDEC_CUDA=ON, but no CUDA compiler (nvcc) was found. "
                        "Put nvcc on PATH or configure with -DSPECDEC_CUDA=OFF.")
  endif()
  # Never probe for a GPU: the list is fixed here unless the user gives another.
  if(NOT TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
    set(TORCH_CUDA_ARCH_LIST "8.0;8.6;8.9;9.0")
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90-real)
  endif()
  enable_language(CUDA)
  message(STATUS "CUDA: on (nvcc ${CMAKE_CUDA_COMPILER_VERSION})")
else()
  message(STATUS "CUDA: off, building for CPU only")
endif()

if(SPECDEC_METAL)
  if(NOT APPLE)
    message(FATAL_ERROR "SPECDEC_METAL=ON, but this is ${CMAKE_SYSTEM_NAME}: Metal exists on macOS. "
                        "Configure with -DSPECDEC_METAL=OFF.")
  endif()
  enable_language(OBJCXX)
endif()

if(SPECDEC_SANITIZE STREQUAL address)
  set(specdec_sanitizers -fsanitize=address,undefined)
elseif(SPECDEC_SANITIZE STREQUAL thread)
  set(specdec_sanitizers -fsanitize=thread)
elseif(SPECDEC_SANITIZE)
  message(FATAL_ERROR "SPECDEC_SANITIZE=${SPECDEC_SANITIZE} is unknown: address, thread or OFF.")
endif()
if(specdec_sanitizers)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${specdec_sanitizers}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(${specdec_sanitizers})
endif()
if(SPECDEC_SANITIZE STREQUAL address)
  # ASan finds what is read through null pointers, bad ones and those that overflowed.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,pointer-overflow,vptr>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
endif()
