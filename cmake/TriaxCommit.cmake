# cmake -DSOURCE=FOLDER -DVERSION=A.B.C -DOUTPUT=FILE -P TriaxCommit.cmake: writes version.cpp if it is not that already.
# The commit is empty where the folder is no repository of its own.
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel
                OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(commit "")
file(REAL_PATH ${SOURCE} real)
if(NOT failed AND top STREQUAL real)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=12
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "triax/core/version.h"

namespace triax {

const char* version() { return "@VERSION@"; }
const char* commit() { return "@commit@"; }

}  // namespace triax
]] @ONLY)
