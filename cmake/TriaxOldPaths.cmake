# The paths of headers until 0.1, such as "core/tensor.h": for users' projects until 0.3, with a warning.
include(GNUInstallDirs)
set(old_paths ${PROJECT_BINARY_DIR}/old_paths)
foreach(library triax_core triax_autograd triax_nn triax_optim triax_parallel triax_program)
  get_target_property(headers ${library} HEADER_SET)
  foreach(header ${headers})
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${triax_headers}/triax OUTPUT_VARIABLE path)
    file(CONFIGURE OUTPUT ${old_paths}/${path} CONTENT "#pragma once
#warning \"${path}\" is \"triax/${path}\" now; this path goes with version 0.3
#include \"triax/${path}\"
")
  endforeach()
endforeach()
target_include_directories(triax_core INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/triax/old_paths>)
if(TRIAX_INSTALL)
  install(DIRECTORY ${old_paths}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/triax/old_paths)
endif()
if(NOT PROJECT_IS_TOP_LEVEL)
  target_include_directories(triax_core INTERFACE $<BUILD_INTERFACE:${old_paths}>)
endif()
