# Declares specdec::gmp, exact integers and fractions (Debian's libgmp ships no CMake package).
if(NOT TARGET specdec::gmp)
  find_path(SPECDEC_GMP_INCLUDE gmpxx.h REQUIRED)
  find_library(SPECDEC_GMPXX gmpxx REQUIRED)
  find_library(SPECDEC_GMP gmp REQUIRED)
  add_library(specdec::gmp INTERFACE IMPORTED)
  target_include_directories(specdec::gmp SYSTEM INTERFACE "${SPECDEC_GMP_INCLUDE}")
  target_link_libraries(specdec::gmp INTERFACE "${SPECDEC_GMPXX}" "${SPECDEC_GMP}")
endif()
