# The imported target cairn::openblas. The build includes this file and so does the installed cairn-config.cmake: each
# machine finds its own OpenBLAS. Another one: -DCAIRN_BLAS=... (the library).
find_library(CAIRN_BLAS NAMES openblas PATH_SUFFIXES openblas-openmp DOC "OpenBLAS")
if(CAIRN_BLAS AND NOT TARGET cairn::openblas)
  add_library(cairn::openblas UNKNOWN IMPORTED GLOBAL)
  set_target_properties(cairn::openblas PROPERTIES IMPORTED_LOCATION "${CAIRN_BLAS}")
endif()
