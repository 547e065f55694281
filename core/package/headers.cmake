# cmake -DSOURCE=... -DOUT=... -P headers.cmake: copies the library's headers to OUT/cairn/. The copies include each other by
# paths that begin with cairn/, so the compiler cannot confuse a user's own core/error.h with Cairn's.
file(GLOB_RECURSE headers RELATIVE ${SOURCE} ${SOURCE}/core/*.h ${SOURCE}/autograd/*.h ${SOURCE}/nn/*.h)
# It leaves out the headers of the CPU's kernels: their results depend on compiler options, so a program must not contain two
# versions of them. Nor does it refuse a user's compiler options.
list(FILTER headers EXCLUDE REGEX "^core/(cpu/|functors\\.h|strict_math\\.h)")
foreach(header IN LISTS headers)
  file(READ ${SOURCE}/${header} text)
  string(REPLACE "#include \"core/strict_math.h\"\n" "" text "${text}")
  string(REGEX REPLACE "#include \"(core|autograd|nn)/" "#include \"cairn/\\1/" text "${text}")
  file(CONFIGURE OUTPUT ${OUT}/cairn/${header} CONTENT "${text}" @ONLY)  # writes only if it differs
endforeach()

# cairn.h includes the headers that users need, and these include the others.
file(GLOB all RELATIVE ${SOURCE} ${SOURCE}/autograd/*.h ${SOURCE}/nn/*.h ${SOURCE}/nn/io/*.h ${SOURCE}/nn/optim/*.h
     ${SOURCE}/nn/parallel/*.h)
set(text "#pragma once\n// All of Cairn.\n")
foreach(header core/attention_ops.h core/ops.h core/parallel.h core/timing.h core/trace.h nn/attention/observe.h ${all})
  string(APPEND text "#include \"cairn/${header}\"\n")
endforeach()
file(WRITE ${OUT}/cairn/cairn.h "${text}")
