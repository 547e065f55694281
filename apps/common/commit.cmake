# Writes OUT, a header with the version and the commit that SOURCE is at ("+" behind it: with changes), if it differs. The
# repository is SOURCE's own, not one around it, and not the one that the environment names.
unset(ENV{GIT_INDEX_FILE})
execute_process(COMMAND git --git-dir=${SOURCE}/.git --work-tree=${SOURCE} describe --always --abbrev=10 --dirty=+ --exclude=*
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
