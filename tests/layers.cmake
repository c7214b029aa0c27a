# cmake -P tests/layers.cmake: no folder includes what stands above it. CMake targets cannot say so:
# all include from the repository's root, and a program links everything.
cmake_minimum_required(VERSION 3.25)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)

# layer(<folder> <what it may not include, a regular expression>)
function(layer folder forbidden)
  file(GLOB_RECURSE sources ${root}/${folder}/*.h ${root}/${folder}/*.cpp)
  if(NOT sources)
    message(SEND_ERROR "${folder}: no sources; name the layers as the folders are named")
  endif()
  foreach(source IN LISTS sources)
    file(STRINGS ${source} includes REGEX "^#include \"(${forbidden})/")
    foreach(include IN LISTS includes)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${root})
      message(SEND_ERROR "${source}: ${include}: ${folder}/ stands below that folder")
    endforeach()
  endforeach()
endfunction()

set(above_core kv|grammar|decoders|experiments)
layer(core "${above_core}|tests")
layer(core/formats "${above_core}|core/(transformer|families|kernels)")
layer(core/jinja "${above_core}|core/(transformer|families|kernels)")
layer(core/kernels "${above_core}|core/(transformer|families)")
layer(core/transformer "${above_core}|core/(families|embeddings)")
layer(core/families "${above_core}|core/embeddings")
layer(kv "core/(transformer|families|embeddings)|grammar|decoders|experiments")
layer(grammar "core/(transformer|families|embeddings)|kv|decoders|experiments")
layer(decoders "core/(transformer|families|embeddings)|kv|experiments")

# Two types of one name in namespace specdec are undefined behaviour once a program links both: the
# linker keeps one of their inline members for both.
file(GLOB_RECURSE headers ${root}/core/*.h ${root}/kv/*.h ${root}/grammar/*.h ${root}/decoders/*.h
     ${root}/experiments/*.h)
list(FILTER headers EXCLUDE REGEX "core/kernels/vector_simd\\.h$")  # a namespace for each target
foreach(header IN LISTS headers)
  file(STRINGS ${header} definitions REGEX "^(struct|class) [A-Za-z0-9_]+( final)?( : [^;]*)? {$")
  foreach(definition IN LISTS definitions)
    string(REGEX MATCH "^[a-z]+ ([A-Za-z0-9_]+)" matched "${definition}")
    set(name ${CMAKE_MATCH_1})
    if(DEFINED "defined_${name}")
      message(SEND_ERROR "${header}: ${name} is also defined in ${defined_${name}}; rename one")
    endif()
    set("defined_${name}" ${header})
  endforeach()
endforeach()
