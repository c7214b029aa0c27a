# Declares specdec::pcre2, regular expressions over UTF-8 (not every libpcre2 ships a CMake package).
if(NOT TARGET specdec::pcre2)
  find_path(SPECDEC_PCRE2_INCLUDE pcre2.h REQUIRED)
  find_library(SPECDEC_PCRE2 pcre2-8 REQUIRED)
  add_library(specdec::pcre2 INTERFACE IMPORTED)
  target_include_directories(specdec::pcre2 SYSTEM INTERFACE "${SPECDEC_PCRE2_INCLUDE}")
  target_link_libraries(specdec::pcre2 INTERFACE "${SPECDEC_PCRE2}")
endif()
