# specdec_library(<name> <source>...): a static library of the project: warnings, includes from the
# repository root, its place in the exported package.
add_library(specdec_settings INTERFACE)
target_compile_options(specdec_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wno-unknown-pragmas>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SPECDEC_WERROR}>>:-Werror>)

function(specdec_library name)
  add_library(${name} STATIC ${ARGN})
  add_library(specdec::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/specdec>)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:specdec_settings>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY SPECDEC_LIBRARIES ${name})
endfunction()

# specdec_precompiled_header(<target>): reuse the project's one precompiled header, which
# specdec_core builds; so programs are compiled with the libraries' -fPIC instead of -fPIE.
function(specdec_precompiled_header target)
  if(SPECDEC_PCH)
    target_precompile_headers(${target} REUSE_FROM specdec_core)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
  endif()
endfunction()
