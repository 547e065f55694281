# CAIRN_CPU=v3+v4: one installation for every processor since x86-64-v3. The library is shared, and built again for
# x86-64-v4 into a folder where the loader (glibc 2.33 or later) looks first on a processor that has it. Whoever links to
# the library knows nothing of that.
if(NOT CAIRN_CPU STREQUAL v3+v4)
  return()
endif()
if(NOT CAIRN_CUDA STREQUAL OFF)
  message(FATAL_ERROR "CAIRN_CPU=v3+v4 builds the CPU's kernels alone; with CAIRN_CUDA=${CAIRN_CUDA}, expected native, v3 or v4")
endif()
set(v4_folder glibc-hwcaps/x86-64-v4)
get_target_property(sources cairn SOURCES)
add_library(cairn_v4 SHARED ${sources})
target_link_libraries(cairn_v4 PRIVATE $<TARGET_PROPERTY:cairn,LINK_LIBRARIES>)
target_include_directories(cairn_v4 PRIVATE $<TARGET_PROPERTY:cairn,INCLUDE_DIRECTORIES>)
target_compile_definitions(cairn_v4 PRIVATE $<TARGET_PROPERTY:cairn,COMPILE_DEFINITIONS>)
target_compile_options(cairn_v4 PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v4>")
set_target_properties(cairn_v4 PROPERTIES OUTPUT_NAME cairn LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${v4_folder})
add_dependencies(cairn cairn_v4)
foreach(library cairn cairn_v4)
  # A library's calls of its own functions stay within it: they may not end in a program's copy, compiled for less.
  target_compile_options(${library} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  target_link_options(${library} PRIVATE -Wl,-Bsymbolic-functions)
  set_target_properties(${library} PROPERTIES VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endforeach()
# Programs find the library wherever the prefix is moved to.
if(CAIRN_INSTALL)
  include(GNUInstallDirs)
  file(RELATIVE_PATH from_programs ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set(CMAKE_INSTALL_RPATH $ORIGIN/${from_programs})
  install(TARGETS cairn_v4 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/${v4_folder} NAMELINK_SKIP)
endif()
