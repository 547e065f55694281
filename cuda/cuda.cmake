# The CUDA part of the library. ON: nvcc compiles cuda/*.cu for GPUs. HOST: the C++ compiler compiles them, and cuda/emulator/
# runs the kernels on the CPU. A new cuda/<stem>.cu needs no line here.
file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/*.cu)

if(CAIRN_CUDA STREQUAL HOST)
  file(GLOB emulator CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/emulator/*.cpp)
  # clang may ignore `#pragma unroll` without a warning. With sanitizers it does ignore it, because unrolled loops with a check
  # at each access take minutes to compile (attention.cu: 107 s, now 37 s).
  set(host_kernel_options $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
  if(CAIRN_SANITIZE)
    list(APPEND host_kernel_options "$<$<CXX_COMPILER_ID:Clang>:-mllvm;-pragma-unroll-threshold=1>")
  endif()
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${host_kernel_options}")
  target_compile_definitions(cairn PUBLIC CAIRN_CUDA_HOST=1)
  if(CAIRN_SANITIZE MATCHES address)
    target_compile_definitions(cairn PUBLIC CAIRN_HOST_CUDA_ASAN=1)
  endif()
  if(CAIRN_SANITIZE MATCHES thread)
    # The sanitizer treats each CUDA thread as a thread, and only barriers order them. The emulator runs all of them on one
    # host thread, which would look like a race. So the emulator is not instrumented, and tells the sanitizer what a barrier
    # orders.
    set_source_files_properties(${emulator} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread"
                                COMPILE_DEFINITIONS CAIRN_HOST_CUDA_TSAN=1)
  endif()
  set_source_files_properties(${emulator} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  target_sources(cairn PRIVATE ${emulator})

elseif(CAIRN_CUDA STREQUAL ON)
  # CMake 3.25 does not know how nvcc spells C++20.
  if(CMAKE_VERSION VERSION_LESS 3.26)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_program(nvcc NAMES "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}" nvcc PATHS /usr/local/cuda/bin NO_CACHE)
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" nvcc_version "${nvcc_version}")
  set(nvcc_version "${CMAKE_MATCH_1}")
  if(nvcc_version AND nvcc_version VERSION_LESS 12)
    message(FATAL_ERROR "CAIRN_CUDA=ON needs CUDA 12 or later, and ${nvcc} is of CUDA ${nvcc_version}; \
name another with -DCMAKE_CUDA_COMPILER=/path/to/nvcc")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # The GPUs that are here, which takes a third of the time. Without one: Turing, Ampere, Hopper with PTX, from which
    # drivers compile for later GPUs, and Blackwell (RTX 50), for which that takes half a minute at the first step.
    execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE without_gpu OUTPUT_QUIET ERROR_QUIET)
    set(architectures 75-real 80-real 90)
    if(without_gpu STREQUAL 0)
      set(architectures native)
    elseif(nvcc_version VERSION_GREATER_EQUAL 12.8)
      list(APPEND architectures 120-real)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPUs to compile for; `native` for those of this machine")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED GLOBAL)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # (The target was created before these variables were set.)
  set_target_properties(cairn PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
                                         CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")

  # Kernels may call what is constexpr, such as std::bit_cast.
  set(cuda_flags --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-unknown-pragmas)
  if(CAIRN_WERROR)
    list(APPEND cuda_flags -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  set(cuda_flags "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
  add_compile_options("${cuda_flags}")
  target_compile_options(cairn PRIVATE "${cuda_flags}")  # (created before the line above)
  target_link_libraries(cairn PUBLIC CUDA::cublas
                        $<IF:$<TARGET_EXISTS:CUDA::cudart_static>,CUDA::cudart_static,CUDA::cudart>)

else()
  message(FATAL_ERROR "CAIRN_CUDA: expected OFF, ON or HOST, got '${CAIRN_CUDA}'")
endif()

target_sources(cairn PRIVATE ${kernels})
target_compile_definitions(cairn PUBLIC CAIRN_HAS_CUDA=1)

# The kernels of cuda/ladder/ and the program that times them.
if(CAIRN_APPS)
  file(GLOB ladder CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/ladder/*.cu)
  if(CAIRN_CUDA STREQUAL HOST)
    set_source_files_properties(${ladder} PROPERTIES LANGUAGE CXX)
  endif()
  add_library(cairn_ladder STATIC ${ladder})
  target_link_libraries(cairn_ladder PUBLIC cairn)
  add_executable(cairn-ladder ${PROJECT_SOURCE_DIR}/cuda/ladder/main.cpp)
  target_link_libraries(cairn-ladder PRIVATE cairn_ladder)
endif()
