# A text to train on that is always there: this repository's own sources, one after another, as
# printable ASCII. The target `corpus` makes it, TRIAX_CORPUS is where; it lies at
# ../share/triax/corpus.txt from the programs, in the build directory as in an installation.
set(patterns)
foreach(folder core autograd nn optim parallel examples tests bench docs scripts cmake)
  foreach(ending h cpp cu cuh md txt cmake sh py)
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/${folder}/*.${ending})
  endforeach()
endforeach()
file(GLOB_RECURSE texts CONFIGURE_DEPENDS ${patterns})
list(APPEND texts ${PROJECT_SOURCE_DIR}/CMakeLists.txt ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
  ${PROJECT_SOURCE_DIR}/README.md)
list(SORT texts)

set(TRIAX_CORPUS ${PROJECT_BINARY_DIR}/share/triax/corpus.txt)
set(parts ${PROJECT_BINARY_DIR}/share/corpus.parts)
list(JOIN texts "\n" lines)
file(GENERATE OUTPUT ${parts} CONTENT "${lines}\n")
add_custom_command(OUTPUT ${TRIAX_CORPUS}
  COMMAND sh -c "xargs cat <$1 | LC_ALL=C tr -cd '\\11\\12\\40-\\176' >$2" sh ${parts} ${TRIAX_CORPUS}
  DEPENDS ${texts} ${parts} COMMENT "Making the corpus" VERBATIM)
add_custom_target(corpus ALL DEPENDS ${TRIAX_CORPUS})
if(TRIAX_INSTALL)
  install(FILES ${TRIAX_CORPUS} DESTINATION share/triax)
endif()
