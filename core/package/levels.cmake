# CAIRN_CPU=v3+v4: one installation for every processor from x86-64-v3 on. It builds a shared library twice, for v3 and for
# v4. The loader (glibc 2.33 or later) looks first in the folder of the v4 build if the processor supports it. Programs link
# as usual. GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F in the environment makes the loader use the v3 build.
if(NOT CAIRN_CPU STREQUAL v3+v4)
  return()
endif()
if(NOT CAIRN_CUDA STREQUAL OFF)
  message(FATAL_ERROR "CAIRN_CPU=v3+v4 does not support CUDA; with CAIRN_CUDA=${CAIRN_CUDA}, expected native, v3 or v4")
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
  # The library must call its own functions, not a program's copies of them, which may be compiled for other processors.
  target_compile_options(${library} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  target_link_options(${library} PRIVATE -Wl,-Bsymbolic-functions)
  set_target_properties(${library} PROPERTIES VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endforeach()
# Programs find the library even after the prefix is moved.
if(CAIRN_INSTALL)
  include(GNUInstallDirs)
  file(RELATIVE_PATH from_programs ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set(CMAKE_INSTALL_RPATH $ORIGIN/${from_programs})
  install(TARGETS cairn_v4 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/${v4_folder} NAMELINK_SKIP)
endif()
