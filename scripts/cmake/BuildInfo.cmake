# Writes the source that tells a program what it was built from: commit, build type, versions.
#
# Included, it defines specdec_build_info(<target>), which adds that source to a target. Run by
# `cmake -P` at every build, it writes the file anew when the commit or the state of the tree has
# changed, and only then, so that nothing is compiled again for nothing.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(SPECDEC_BUILD_INFO_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")

  function(specdec_build_info target)
    set(output "${CMAKE_CURRENT_BINARY_DIR}/build_info.cpp")
    find_package(Git QUIET)
    add_custom_target(${target}_build_info
      COMMAND ${CMAKE_COMMAND} -D "OUTPUT=${output}" -D "SOURCE_DIR=${PROJECT_SOURCE_DIR}"
              -D "GIT=${GIT_EXECUTABLE}" -D "BUILD_TYPE=${CMAKE_BUILD_TYPE}"
              -D "YAML_CPP_VERSION=${yaml-cpp_VERSION}" -P "${SPECDEC_BUILD_INFO_SCRIPT}"
      BYPRODUCTS "${output}"
      VERBATIM)
    target_sources(${target} PRIVATE "${output}")
    set_source_files_properties("${output}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    add_dependencies(${target} ${target}_build_info)
  endfunction()
  return()
endif()

set(commit "unknown")
if(GIT AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(COMMAND "${GIT}" rev-parse HEAD WORKING_DIRECTORY "${SOURCE_DIR}"
                  OUTPUT_VARIABLE head RESULT_VARIABLE failed ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    set(commit "${head}")
    execute_process(COMMAND "${GIT}" --no-optional-locks status --porcelain --untracked-files=no
                    WORKING_DIRECTORY "${SOURCE_DIR}" OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit "+changes")
    endif()
  endif()
endif()
if(NOT YAML_CPP_VERSION)
  set(YAML_CPP_VERSION "unknown")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
// Written by scripts/cmake/BuildInfo.cmake.
#include "experiments/metrics/environment.h"

namespace specdec {

std::string built_from_commit() { return "@commit@"; }

std::string build_type() { return "@BUILD_TYPE@"; }

std::map<std::string, std::string> library_versions() {
  return {{"yaml-cpp", "@YAML_CPP_VERSION@"}};
}

}  // namespace specdec
]])
