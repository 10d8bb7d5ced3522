# Images to train on that are always there: 1,797 handwritten digits as a file of CIFAR-10's binary
# format (cmake/digits.py). The target `digits` makes it, TRIAX_DIGITS is where; it lies at
# ../share/triax/digits.bin from the programs, in the build directory as in an installation.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(TRIAX_DIGITS ${PROJECT_BINARY_DIR}/share/triax/digits.bin)
set(script ${PROJECT_SOURCE_DIR}/cmake/digits.py)
set(source ${PROJECT_SOURCE_DIR}/tests/fixtures/digits.csv.gz)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/triax)
add_custom_command(OUTPUT ${TRIAX_DIGITS}
  COMMAND ${Python3_EXECUTABLE} ${script} ${TRIAX_DIGITS} --from ${source}
  DEPENDS ${script} ${source} COMMENT "Making the digits" VERBATIM)
add_custom_target(digits ALL DEPENDS ${TRIAX_DIGITS})
if(TRIAX_INSTALL)
  install(FILES ${TRIAX_DIGITS} DESTINATION share/triax)
endif()
