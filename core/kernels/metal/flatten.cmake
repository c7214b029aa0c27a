# specdec_flatten_metal(<source> <result>): the text of a .metal source with the project's headers in it,
# as Metal compiles it at run time, when there are no files. As a script,
# `cmake -DROOT=... -DOUT=FOLDER -DSOURCES=a.metal,b.metal -P flatten.cmake` writes FOLDER/NAME.metal for
# each, and FOLDER/metal_sources.cpp, which embeds them.
cmake_minimum_required(VERSION 3.25)

function(specdec_flatten_file file result)
  get_property(seen GLOBAL PROPERTY SPECDEC_FLATTENED)
  if(file IN_LIST seen)
    set(${result} "" PARENT_SCOPE)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY SPECDEC_FLATTENED ${file})
  file(READ ${ROOT}/${file} text)
  string(REPLACE "#pragma once\n" "" text "${text}")
  while(text MATCHES "#include \"(core/[a-z_/.]+)\"\n")
    set(line "${CMAKE_MATCH_0}")
    specdec_flatten_file(${CMAKE_MATCH_1} included)
    string(REPLACE "${line}" "${included}" text "${text}")
  endwhile()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

function(specdec_flatten_metal source result)
  set_property(GLOBAL PROPERTY SPECDEC_FLATTENED "")
  specdec_flatten_file(${source} text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  return()
endif()

string(REPLACE "," ";" SOURCES "${SOURCES}")
set(embedded "")
foreach(source IN LISTS SOURCES)
  specdec_flatten_metal(${source} text)
  get_filename_component(name ${source} NAME_WE)
  file(WRITE ${OUT}/${name}.metal "${text}")
  string(APPEND embedded "    {\"${name}\", R\"metal(${text})metal\"},\n")
endforeach()
file(WRITE ${OUT}/metal_sources.cpp
"#include \"core/kernels/metal/metal_sources.h\"

namespace specdec::mps {

std::span<const MetalSource> metal_sources() {
  static const MetalSource kSources[] = {
${embedded}  };
  return kSources;
}

}  // namespace specdec::mps
")
