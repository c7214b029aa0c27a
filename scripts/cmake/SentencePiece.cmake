# Declares specdec::sentencepiece (Debian's libsentencepiece ships no CMake package).
if(NOT TARGET specdec::sentencepiece)
  find_path(SPECDEC_SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
  find_library(SPECDEC_SENTENCEPIECE sentencepiece REQUIRED)
  find_library(SPECDEC_SENTENCEPIECE_TRAIN sentencepiece_train REQUIRED)
  add_library(specdec::sentencepiece INTERFACE IMPORTED)
  target_include_directories(specdec::sentencepiece SYSTEM INTERFACE
                             "${SPECDEC_SENTENCEPIECE_INCLUDE}")
  target_link_libraries(specdec::sentencepiece INTERFACE
                        "${SPECDEC_SENTENCEPIECE}" "${SPECDEC_SENTENCEPIECE_TRAIN}")
endif()
