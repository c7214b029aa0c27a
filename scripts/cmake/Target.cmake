# specdec_library(<name> [REUSED] <source>...): a static library of the project: warnings, includes
# from the repository root, its place in the exported package. REUSED: with SPECDEC_OBJECTS its
# sources are not compiled again, the other build's objects are taken; with SPECDEC_REUSE_ALL too,
# those of each library.
add_library(specdec_settings INTERFACE)
target_compile_options(specdec_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wno-unknown-pragmas>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SPECDEC_WERROR}>>:-Werror>
  # What GCC 12 says of inlined std::string by mistake (its bug 105651), here and not there.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${SPECDEC_WERROR}>>:-Wno-error=restrict>
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${SPECDEC_WERROR}>>:-Wno-error=stringop-overflow>)

# The objects that another build has made of a target's sources.
function(specdec_objects_of name result)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  file(GLOB_RECURSE objects ${SPECDEC_OBJECTS}/${folder}/CMakeFiles/${name}.dir/*.o)
  if(NOT objects)
    message(FATAL_ERROR "${SPECDEC_OBJECTS} has no objects of ${name}: build it there first")
  endif()
  set(${result} ${objects} PARENT_SCOPE)
endfunction()

function(specdec_library name)
  cmake_parse_arguments(arg "REUSED" "" "" ${ARGN})
  set(sources ${arg_UNPARSED_ARGUMENTS})
  if(SPECDEC_OBJECTS AND (arg_REUSED OR SPECDEC_REUSE_ALL))
    specdec_objects_of(${name} sources)
  endif()
  add_library(${name} STATIC ${sources})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  add_library(specdec::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/specdec>)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:specdec_settings>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY SPECDEC_LIBRARIES ${name})
endfunction()

# specdec_precompiled_header(<target> [OPERATORS]): reuse one of the project's two precompiled headers:
# the one of specdec_text, or with OPERATORS, for sources that call LibTorch's, the one of specdec_core.
# So programs are compiled with the libraries' -fPIC instead of -fPIE.
function(specdec_precompiled_header target)
  cmake_parse_arguments(arg "OPERATORS" "" "" ${ARGN})
  if(arg_OPERATORS)
    set(owner specdec_core)
  else()
    set(owner specdec_text)
  endif()
  get_target_property(sources ${target} SOURCES)
  if(SPECDEC_PCH AND NOT sources MATCHES "\\.o(;|$)")
    target_precompile_headers(${target} REUSE_FROM ${owner})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
  endif()
endfunction()

# specdec_layer(<name> [OPERATORS] <source>... [LINKS <target>...]): a library of its own for a layer of
# a folder, so that what the layer may know is what it links, and batches of sources never cross layers.
function(specdec_layer name)
  cmake_parse_arguments(arg "OPERATORS" "" "LINKS" ${ARGN})
  specdec_library(${name} ${arg_UNPARSED_ARGUMENTS})
  if(arg_LINKS)
    target_link_libraries(${name} PUBLIC ${arg_LINKS})
  endif()
  if(arg_OPERATORS)
    specdec_precompiled_header(${name} OPERATORS)
  else()
    specdec_precompiled_header(${name})
  endif()
endfunction()

# specdec_gpu_program(<target>): what is carried to a machine with a GPU lies in gpu/ of the build folder
# and looks for the project's libraries beside itself, for others where LD_LIBRARY_PATH says.
function(specdec_gpu_program target)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN")
endfunction()
