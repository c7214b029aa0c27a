# Declares the targets `specdec::libtorch`, LibTorch's headers and shared libraries, and
# `specdec::libtorch_headers`, for what must be compiled as its users are but needs none of it.
#
# It looks where CMAKE_PREFIX_PATH points (a LibTorch folder, or what
# `torch.utils.cmake_prefix_path` prints), then in the .venv that scripts/setup makes.
# With SPECDEC_CUDA it calls find_package(Torch), which needs nvcc; without, the wheel's own CMake
# refuses to configure, so the two libraries that CPU code needs are declared here.
# Installed beside the exported package, so that no path of the build machine is exported.

if(TARGET specdec::libtorch)
  return()
endif()

set(SPECDEC_LIBTORCH_MINIMUM 2.11)
file(GLOB specdec_venv_torch
     "${CMAKE_CURRENT_LIST_DIR}/../../.venv/lib/python3*/site-packages/torch")
find_path(SPECDEC_TORCH_INCLUDE NAMES ATen/core/Tensor.h
          HINTS ${CMAKE_PREFIX_PATH} ${specdec_venv_torch}
          PATH_SUFFIXES include ../../include NO_DEFAULT_PATH)
find_path(SPECDEC_TORCH_INCLUDE NAMES ATen/core/Tensor.h)
if(NOT SPECDEC_TORCH_INCLUDE)
  message(FATAL_ERROR "LibTorch (>= ${SPECDEC_LIBTORCH_MINIMUM}) not found. Run scripts/setup, or "
                      "pass -DCMAKE_PREFIX_PATH=/path/to/libtorch.")
endif()
get_filename_component(specdec_torch_root "${SPECDEC_TORCH_INCLUDE}/.." REALPATH)

file(STRINGS "${SPECDEC_TORCH_INCLUDE}/torch/headeronly/version.h" specdec_version_lines
     REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" specdec_version_parts "${specdec_version_lines}")
string(REPLACE ";" "." SPECDEC_LIBTORCH_VERSION "${specdec_version_parts}")
if(SPECDEC_LIBTORCH_VERSION VERSION_LESS SPECDEC_LIBTORCH_MINIMUM)
  message(FATAL_ERROR "LibTorch ${SPECDEC_LIBTORCH_VERSION} at ${specdec_torch_root} is too old; "
                      "specdec needs ${SPECDEC_LIBTORCH_MINIMUM} or newer.")
endif()
message(STATUS "LibTorch ${SPECDEC_LIBTORCH_VERSION}: ${specdec_torch_root}")

add_library(specdec::libtorch INTERFACE IMPORTED)
if(SPECDEC_CUDA)
  # Its own CMake warns of what no wheel has (kineto), and that CMAKE_CUDA_ARCHITECTURES, which our
  # kernels follow, is not what it follows.
  set(specdec_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch REQUIRED QUIET HINTS "${specdec_torch_root}/share/cmake/Torch")
  set(CMAKE_MESSAGE_LOG_LEVEL "${specdec_log_level}")
  # libstdc++ first: libtorch.so exports a std::filesystem::remove_all of its own, which jumps to
  # null, and the loader takes the first library that has a symbol.
  target_link_libraries(specdec::libtorch INTERFACE stdc++ ${TORCH_LIBRARIES})
  target_include_directories(specdec::libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
else()
  foreach(library c10 torch_cpu)
    find_library(SPECDEC_LIB_${library} NAMES ${library} REQUIRED
                 HINTS "${specdec_torch_root}/lib" NO_DEFAULT_PATH)
    add_library(specdec::${library} SHARED IMPORTED)
    set_target_properties(specdec::${library} PROPERTIES
                          IMPORTED_LOCATION "${SPECDEC_LIB_${library}}")
    target_link_libraries(specdec::libtorch INTERFACE specdec::${library})
  endforeach()
  target_include_directories(specdec::libtorch SYSTEM INTERFACE
    "${SPECDEC_TORCH_INCLUDE}" "${SPECDEC_TORCH_INCLUDE}/torch/csrc/api/include")
endif()

# LibTorch's wheel brings an OpenMP runtime with the name of GCC's. A program has one of them: the
# linker sees the one that the loader finds beside LibTorch, so that find_package(OpenMP), which
# comes after this, adds no folder with another of that name to the runtime search path.
if(EXISTS "${specdec_torch_root}/lib/libgomp.so.1")
  set(OpenMP_gomp_LIBRARY "${specdec_torch_root}/lib/libgomp.so.1" CACHE FILEPATH
      "Path to the gomp library for OpenMP: LibTorch's own" FORCE)
endif()

add_library(specdec::libtorch_headers INTERFACE IMPORTED)
set_target_properties(specdec::libtorch_headers PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES
    "$<TARGET_PROPERTY:specdec::libtorch,INTERFACE_INCLUDE_DIRECTORIES>"
  INTERFACE_COMPILE_DEFINITIONS
    "$<TARGET_PROPERTY:specdec::libtorch,INTERFACE_COMPILE_DEFINITIONS>"
  INTERFACE_COMPILE_OPTIONS "$<TARGET_PROPERTY:specdec::libtorch,INTERFACE_COMPILE_OPTIONS>")
