# `cmake --install`: the library, its headers, and the files for find_package(cairn) and pkg-config. No file contains the
# path of the prefix, so the prefix may be moved, unless CMAKE_INSTALL_LIBDIR is an absolute path.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
set(templates ${PROJECT_SOURCE_DIR}/core/package)

install(TARGETS cairn EXPORT cairn ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${public_headers}/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(EXPORT cairn FILE cairn-targets.cmake NAMESPACE cairn:: DESTINATION ${cmake_folder})
configure_package_config_file(${templates}/cairn-config.cmake.in ${PROJECT_BINARY_DIR}/package/cairn-config.cmake
                              INSTALL_DESTINATION ${cmake_folder} NO_SET_AND_CHECK_MACRO
                              NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/cairn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/cairn-config.cmake ${PROJECT_BINARY_DIR}/package/cairn-config-version.cmake
        DESTINATION ${cmake_folder})

# pkg-config. Programs that link a static library also link its dependencies, so none is private.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
             OUTPUT_VARIABLE prefix_from_pc)
  set(pc_prefix "\${pcfiledir}/${prefix_from_pc}")
endif()
set(pc_libdir "\${prefix}")
set(pc_includedir "\${prefix}")
cmake_path(APPEND pc_libdir "${CMAKE_INSTALL_LIBDIR}")  # an absolute path replaces the prefix
cmake_path(APPEND pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
if(NOT CAIRN_CUDA STREQUAL OFF)
  string(APPEND pc_definitions " -DCAIRN_HAS_CUDA=1")
endif()
if(CAIRN_CUDA STREQUAL HOST)
  string(APPEND pc_definitions " -DCAIRN_CUDA_HOST=1")
elseif(CAIRN_CUDA STREQUAL ON)
  string(APPEND pc_libraries " -lcublas -lcudart_static -ldl -lrt")  # -L names the folder of the CUDA Toolkit
endif()
if(CAIRN_CPU STREQUAL v3+v4)
  string(APPEND pc_libraries " -Wl,-rpath,\${libdir}")  # programs find the shared library without ldconfig
endif()
configure_file(${templates}/cairn.pc.in ${PROJECT_BINARY_DIR}/package/cairn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/cairn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
