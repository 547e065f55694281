# Tests of the CUDA kernels, included by tests/CMakeLists.txt unless CAIRN_CUDA is OFF. The program cairn-cuda-tests runs the
# cases with the tag gpu, here and in tests/ops. Without a CUDA device it exits with 77, which CTest shows as skipped. With
# CAIRN_CUDA=HOST each case runs in each order of execution, in a process of its own, and the program includes the tests of the
# emulator (tests/cuda/emulator).
set(folder ${CMAKE_CURRENT_LIST_DIR})
file(GLOB cuda_test_sources CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/*.cu)
list(REMOVE_ITEM cuda_test_sources ${folder}/main.cpp)
file(GLOB emulator_test_sources CONFIGURE_DEPENDS ${folder}/emulator/*.cpp)

add_library(cuda_test_main OBJECT ${folder}/main.cpp)
target_link_libraries(cuda_test_main PRIVATE cairn Catch2::Catch2)
target_compile_options(cuda_test_main PRIVATE ${main_options})
add_executable(cairn-cuda-tests ${cuda_test_sources} ${references})
target_link_libraries(cairn-cuda-tests PRIVATE cuda_test_main cairn_ladder operation_tests cairn_app ${app_libraries})

add_dependencies(cairn-cuda-tests cairn-ladder ${app_programs})
add_test(NAME "gpu: the ladder is timed" COMMAND cairn-ladder)
set_tests_properties("gpu: the ladder is timed" PROPERTIES LABELS gpu SKIP_RETURN_CODE 4)

# tests/gpu.sh names the cases in lists, for several processes. In a list Catch2 cannot read every name: one with a comma, for
# instance.
set(list_names --list-test-names-only)
if(Catch2_VERSION VERSION_GREATER_EQUAL 3)
  set(list_names --list-tests --verbosity quiet)
endif()
add_test(NAME "gpu: a list can name each case"
         COMMAND sh -c [=["$@" "[gpu]" >names; [ -s names ] || exit 77; "$@" -f names | diff names -]=] --
                 $<TARGET_FILE:cairn-cuda-tests> ${list_names})
set_tests_properties("gpu: a list can name each case" PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)

if(NOT CAIRN_CUDA STREQUAL HOST)
  add_test(NAME "gpu: kernels on the device" COMMAND cairn-cuda-tests "[gpu]")
  set_tests_properties("gpu: kernels on the device" PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
  return()
endif()

file(GLOB kernels ${folder}/*.cu)
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
target_sources(cairn-cuda-tests PRIVATE ${emulator_test_sources})
# A process of its own for each case, so that all processors have work until the end. Under the sanitizers a case takes long, so
# only the shuffled order runs, with another seed each time.
set(orders forward shuffled)
if(CAIRN_SANITIZE)
  set(orders shuffled)
endif()
foreach(order IN LISTS orders)
  # (--name only makes the arguments differ: Catch2's module names its files after them.)
  catch_discover_tests(cairn-cuda-tests TEST_SPEC "[gpu]~[host]~[planted]~[program]" TEST_PREFIX "gpu: ${order}: "
                       EXTRA_ARGS --name ${order} PROPERTIES LABELS gpu ENVIRONMENT CAIRN_HOST_CUDA_ORDER=${order}
                       COST 1000)  # some are among the longest, so they begin first
endforeach()
if(NOT CAIRN_SANITIZE)  # each training ends with an evaluation, for which the emulator takes long
  add_test(NAME "gpu: programs on the emulator" COMMAND cairn-cuda-tests "[program]")
  set_tests_properties("gpu: programs on the emulator" PROPERTIES LABELS gpu)
endif()
if(CAIRN_SANITIZE MATCHES thread)
  set(without_races ~[race])  # the sanitizer finds these first
endif()
add_test(NAME "gpu: the emulator" COMMAND cairn-cuda-tests "[host]~[planted]${without_races}")
set_tests_properties("gpu: the emulator" PROPERTIES LABELS gpu)

# An unknown order is an error of the first launch.
add_test(NAME "gpu: a bad order in the environment" COMMAND cairn-cuda-tests "a launch that CUDA refuses*")
set_tests_properties("gpu: a bad order in the environment" PROPERTIES LABELS gpu
                     ENVIRONMENT CAIRN_HOST_CUDA_ORDER=sideways
                     PASS_REGULAR_EXPRESSION "expected forward or shuffled, got 'sideways'")

# The switch of stacks for other processors. (The same lines tell the sanitizers about both switches.)
if(NOT CAIRN_SANITIZE)
  file(GLOB emulator ${PROJECT_SOURCE_DIR}/cuda/emulator/*.cpp)
  add_executable(cairn-ucontext-tests ${emulator_test_sources} ${emulator} ${PROJECT_SOURCE_DIR}/core/error.cpp
                 ${PROJECT_SOURCE_DIR}/core/parallel.cpp)
  target_compile_definitions(cairn-ucontext-tests PRIVATE CAIRN_HOST_CUDA_UCONTEXT=1)
  target_link_libraries(cairn-ucontext-tests PRIVATE cuda_test_main cairn Catch2::Catch2)
  add_test(NAME "gpu: the emulator with ucontext" COMMAND cairn-ucontext-tests "[host]~[planted]")
  set_tests_properties("gpu: the emulator with ucontext" PROPERTIES LABELS gpu)
endif()

# Mistakes that must be found. Each of these hidden cases ends with a report of the emulator or a sanitizer. They run in the
# order of the other tests: in forward order the thread sanitizer passes over the race in a block cluster.
function(planted case expected)
  add_test(NAME "gpu: found: ${case}" COMMAND cairn-cuda-tests "planted: ${case}")
  set_tests_properties("gpu: found: ${case}" PROPERTIES LABELS gpu PASS_REGULAR_EXPRESSION "${expected}"
                       ENVIRONMENT CAIRN_HOST_CUDA_ORDER=shuffled)
endfunction()
if(CAIRN_SANITIZE MATCHES address)
  planted("rows are reversed" "AddressSanitizer: heap-buffer-overflow")
  planted("device memory out of bounds" "AddressSanitizer: heap-buffer-overflow")
  planted("device memory after it was freed" "AddressSanitizer: heap-use-after-free")
  planted("dynamic shared memory out of bounds" "AddressSanitizer: heap-buffer-overflow")
  planted("another block's shared memory out of bounds" "AddressSanitizer: heap-buffer-overflow")
  planted("static shared memory out of bounds" "AddressSanitizer: global-buffer-overflow|index 8 out of bounds")
  planted("local memory out of bounds" "AddressSanitizer: stack-buffer-overflow")
elseif(CAIRN_SANITIZE MATCHES thread)
  planted("a race for shared memory" "ThreadSanitizer: data race")
  planted("a race between blocks" "ThreadSanitizer: data race")
  planted("a race in a block cluster" "ThreadSanitizer: data race")
else()
  planted("rows are reversed" "written out of bounds: byte 20 of 20")
endif()
