# bin/dtorch, lib/libdtorch.so, the public headers, and what find_package(dtorch) reads.
include(CMakePackageConfigHelpers)
install(TARGETS dtorch_cli RUNTIME DESTINATION bin)
install(TARGETS dtorch EXPORT dtorch LIBRARY DESTINATION lib)
if(EXISTS ${PROJECT_SOURCE_DIR}/include)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION include)
endif()
# What the public headers include in turn.
foreach(folder base bytes comm data parallel)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/core/${folder} DESTINATION include/dtorch/internal/core FILES_MATCHING PATTERN "*.h")
endforeach()
if(EXISTS ${PROJECT_SOURCE_DIR}/configs)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION share/dtorch/configs)
endif()
install(EXPORT dtorch NAMESPACE dtorch:: FILE dtorchTargets.cmake DESTINATION lib/cmake/dtorch)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/dtorchConfig.cmake.in ${PROJECT_BINARY_DIR}/dtorchConfig.cmake
    INSTALL_DESTINATION lib/cmake/dtorch)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dtorchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dtorchConfig.cmake ${PROJECT_BINARY_DIR}/dtorchConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/cmake/Torch.cmake ${PROJECT_SOURCE_DIR}/cmake/TorchSearch.cmake DESTINATION lib/cmake/dtorch)
