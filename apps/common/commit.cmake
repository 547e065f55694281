# Writes OUT, a header with the version and the commit that SOURCE is at ("+" behind it: with changes), if it differs.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=10 --dirty=+ --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
set(text "#pragma once\n#define CAIRN_VERSION \"${VERSION}\"\n#define CAIRN_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUT} "${text}")
endif()
