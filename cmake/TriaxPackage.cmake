# What other builds and systems read: pkg-config's file, and Debian packages by `cpack -G DEB`.
set(libraries_of_others "-lfmt -pthread -ldl")
get_target_property(links triax_parallel LINK_LIBRARIES)
if(links MATCHES "MPI::MPI_CXX")
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI REQUIRED COMPONENTS CXX)
  list(FILTER MPI_CXX_LIBRARIES EXCLUDE REGEX "mpi_cxx")  # the C++ interface, which nobody calls
  list(JOIN MPI_CXX_LIBRARIES " " mpi)
  string(APPEND libraries_of_others " ${mpi}")
endif()
if(triax_has_cuda)
  string(APPEND libraries_of_others " $<TARGET_FILE:CUDA::cudart>")
endif()
if(triax_has_cudnn)
  string(APPEND libraries_of_others " $<TARGET_FILE:triax::cudnn>")
endif()
if(BUILD_SHARED_LIBS)
  set(libraries_of_others -lfmt)
endif()
file(RELATIVE_PATH up /root/${CMAKE_INSTALL_LIBDIR}/pkgconfig /root)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/triax.pc CONTENT "prefix=\${pcfiledir}/${up}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: triax
Description: ${PROJECT_DESCRIPTION}
Version: ${PROJECT_VERSION}
Cflags: -I\${includedir}
Libs: -L\${libdir} -ltriax_program -ltriax_parallel -ltriax_optim -ltriax_nn -ltriax_autograd -ltriax_core ${libraries_of_others}
")
install(FILES ${PROJECT_BINARY_DIR}/triax.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CPACK_PACKAGE_VENDOR "The triax authors")
set(CPACK_PACKAGE_CONTACT "The triax authors <maintainers@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Models are written in C++20 and trained with data, pipeline, tensor, context and
expert parallelism, over MPI and NCCL or in the threads of one process. Any mesh trains the same model, bit
for bit if asked. The programs minigpt, triax-llama and triax-resnet are trained with it.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, g++, cmake, libfmt-dev, nlohmann-json3-dev, libopenmpi-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libdlpack-dev, pkg-config")
include(CPack)
