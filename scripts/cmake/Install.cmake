# `cmake --install`: headers, libraries, the CLI and a package for find_package(specdec).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(specdec_libraries GLOBAL PROPERTY SPECDEC_LIBRARIES)
if(SPECDEC_CUDA)
  list(APPEND specdec_libraries specdec_cuda_kernels)
endif()
install(TARGETS ${specdec_libraries} EXPORT specdecTargets
        ARCHIVE DESTINATION lib/specdec LIBRARY DESTINATION lib/specdec)
install(DIRECTORY core grammar kv decoders experiments
        DESTINATION include/specdec FILES_MATCHING PATTERN "*.h" PATTERN python EXCLUDE)
install(EXPORT specdecTargets NAMESPACE specdec:: DESTINATION lib/cmake/specdec)
configure_package_config_file(scripts/cmake/specdecConfig.cmake.in specdecConfig.cmake
                              INSTALL_DESTINATION lib/cmake/specdec)
write_basic_package_version_file(specdecConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/specdecConfig.cmake"
              "${PROJECT_BINARY_DIR}/specdecConfigVersion.cmake"
              scripts/cmake/Gmp.cmake scripts/cmake/LibTorch.cmake scripts/cmake/Pcre2.cmake
              scripts/cmake/SentencePiece.cmake
        DESTINATION lib/cmake/specdec)
