# A text to train on that is always there, in few distinct characters: the Jargon File of Debian's
# package jargon-text, in the public domain, as prose (prose.awk); where there is no such package,
# this repository's own sources, one after another, as printable ASCII. The target `corpus` makes it,
# TRIAX_CORPUS is where; it lies at ../share/triax/corpus.txt from the programs, in the build
# directory as in an installation.
set(TRIAX_CORPUS ${PROJECT_BINARY_DIR}/share/triax/corpus.txt)
find_file(triax_jargon jargon.txt.gz PATH_SUFFIXES share/doc/jargon-text NO_CACHE)

if(triax_jargon)
  set(prose ${CMAKE_CURRENT_LIST_DIR}/prose.awk)
  add_custom_command(OUTPUT ${TRIAX_CORPUS}
    COMMAND sh -c "gzip -dc \"$1\" | LC_ALL=C awk -f \"$2\" >\"$3\"" sh ${triax_jargon} ${prose} ${TRIAX_CORPUS}
    DEPENDS ${triax_jargon} ${prose} COMMENT "Making the corpus" VERBATIM)
else()
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
  set(parts ${PROJECT_BINARY_DIR}/share/corpus.parts)
  list(JOIN texts "\n" lines)
  file(GENERATE OUTPUT ${parts} CONTENT "${lines}\n")
  add_custom_command(OUTPUT ${TRIAX_CORPUS}
    COMMAND sh -c "xargs cat <$1 | LC_ALL=C tr -cd '\\11\\12\\40-\\176' >$2" sh ${parts} ${TRIAX_CORPUS}
    DEPENDS ${texts} ${parts} COMMENT "Making the corpus" VERBATIM)
endif()
add_custom_target(corpus ALL DEPENDS ${TRIAX_CORPUS})
if(TRIAX_INSTALL)
  install(FILES ${TRIAX_CORPUS} DESTINATION share/triax)
endif()
