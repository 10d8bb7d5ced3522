# Of the tree that this port is in: vcpkg install triax --overlay-ports=packaging/vcpkg
set(SOURCE_PATH ${CMAKE_CURRENT_LIST_DIR}/../../..)
set(mpi OFF)
if("mpi" IN_LIST FEATURES)
  set(mpi ON)
endif()
vcpkg_cmake_configure(SOURCE_PATH ${SOURCE_PATH} OPTIONS
  -DTRIAX_TESTS=OFF -DTRIAX_EXAMPLES=OFF -DTRIAX_CUDA=OFF -DTRIAX_MPI=${mpi} -DTRIAX_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/triax)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/debug/include ${CURRENT_PACKAGES_DIR}/debug/share
     ${CURRENT_PACKAGES_DIR}/debug/bin ${CURRENT_PACKAGES_DIR}/bin)
vcpkg_install_copyright(FILE_LIST ${SOURCE_PATH}/LICENSE ${SOURCE_PATH}/NOTICE)
