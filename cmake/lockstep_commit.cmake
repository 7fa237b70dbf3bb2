# cmake -DSOURCE=FOLDER -DOUTPUT=FILE -P lockstep_commit.cmake: writes a header with the commit of the source, unless it
# has that content already. A source archive without git has "unknown".
execute_process(COMMAND git -C "${SOURCE}" rev-parse --show-toplevel OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE failed)
file(REAL_PATH "${SOURCE}" source)
set(commit unknown)
if(NOT failed AND root STREQUAL source)  # not the repository of a project that contains these files
  execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "#define LOCKSTEP_COMMIT \"${commit}\"\n")
set(known "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" known)
endif()
if(NOT text STREQUAL known)
  file(WRITE "${OUTPUT}" "${text}")
endif()
