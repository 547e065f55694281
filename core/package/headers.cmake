# cmake -DSOURCE=... -DOUT=... -P headers.cmake: copies the library's headers to OUT/cairn/, where their includes of each
# other begin with cairn/. So a user's own core/error.h is never taken for ours.
file(GLOB_RECURSE headers RELATIVE ${SOURCE} ${SOURCE}/core/*.h ${SOURCE}/autograd/*.h ${SOURCE}/nn/*.h)
# Those of the CPU's kernels stay here: what they compute depends on the options that they are compiled with, so a program
# must not have two versions of it.
list(FILTER headers EXCLUDE REGEX "^core/(cpu/|functors\\.h)")
foreach(header IN LISTS headers)
  file(READ ${SOURCE}/${header} text)
  string(REGEX REPLACE "#include \"(core|autograd|nn)/" "#include \"cairn/\\1/" text "${text}")
  file(CONFIGURE OUTPUT ${OUT}/cairn/${header} CONTENT "${text}" @ONLY)  # which writes what differs
endforeach()

# cairn.h includes what users write programs with, and by that the rest.
file(GLOB all RELATIVE ${SOURCE} ${SOURCE}/autograd/*.h ${SOURCE}/nn/*.h ${SOURCE}/nn/io/*.h ${SOURCE}/nn/optim/*.h
     ${SOURCE}/nn/parallel/*.h)
set(text "#pragma once\n// All of Cairn.\n")
foreach(header core/attention_ops.h core/ops.h core/parallel.h core/timing.h core/trace.h nn/attention/observe.h ${all})
  string(APPEND text "#include \"cairn/${header}\"\n")
endforeach()
file(WRITE ${OUT}/cairn/cairn.h "${text}")
