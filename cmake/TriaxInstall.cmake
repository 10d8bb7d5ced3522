# Installs the libraries, their headers, what find_package(triax) reads, the launcher, what reads runs
# and the pages.
# The programs are installed by examples/, the corpus by TriaxCorpus.cmake, the digits by
# TriaxDigits.cmake.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(TriaxPackage)

set(libraries triax_core triax_autograd triax_nn triax_optim triax_parallel triax_program)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/triax)

# Static libraries hand on all that they link, so a user's project has to find it too; shared ones what
# their headers need.
set(package_of_fmt fmt)
set(package_of_Threads Threads)
set(package_of_MPI MPI)
set(package_of_CUDA CUDAToolkit)
set(package_of_triax CUDAToolkit)  # triax::cudnn, triax::nccl: TriaxCudaLibraries.cmake
set(package_of_nlohmann_json nlohmann_json)
set(packages)
set(TRIAX_CUDA_TARGETS)
foreach(library ${libraries})
  get_target_property(links ${library} INTERFACE_LINK_LIBRARIES)
  foreach(link ${links})
    if(link MATCHES "([A-Za-z_]+)::")
      set(name ${CMAKE_MATCH_1})
      if(NOT DEFINED package_of_${name})
        message(FATAL_ERROR "${library} links ${link}; say in cmake/TriaxInstall.cmake which "
                            "package brings ${name}::")
      endif()
      list(APPEND packages ${package_of_${name}})
      if(link MATCHES "CUDA::cublasLt|triax::[a-z]+")
        list(APPEND TRIAX_CUDA_TARGETS ${CMAKE_MATCH_0})
      endif()
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES packages)
list(TRANSFORM packages REPLACE "(.+)" "find_dependency(\\1)")
list(JOIN packages "\n" TRIAX_DEPENDENCIES)
list(REMOVE_DUPLICATES TRIAX_CUDA_TARGETS)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/triaxConfig.cmake.in
  ${PROJECT_BINARY_DIR}/triaxConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/triaxConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/triaxConfig.cmake ${PROJECT_BINARY_DIR}/triaxConfigVersion.cmake
  DESTINATION ${package_dir})
if(TRIAX_CUDA_TARGETS)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/TriaxCudaLibraries.cmake DESTINATION ${package_dir})
endif()

foreach(library ${libraries})
  string(REPLACE "triax_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS triax ${libraries} EXPORT triax
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT triax NAMESPACE triax:: FILE triaxTargets.cmake DESTINATION ${package_dir})

install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/launch.sh
  ${PROJECT_SOURCE_DIR}/scripts/launch_restarts.sh
  ${PROJECT_SOURCE_DIR}/scripts/launch_elastic.sh DESTINATION share/triax/scripts)
file(CREATE_LINK ../share/triax/scripts/launch.sh ${PROJECT_BINARY_DIR}/triax-launch SYMBOLIC)
install(FILES ${PROJECT_BINARY_DIR}/triax-launch DESTINATION ${CMAKE_INSTALL_BINDIR})
# What reads the files of runs: in Python, which finds the parts of a script where its link leads.
foreach(part report_charts.py report.css report.js pipeline_trace.py run_files.py)
  install(FILES ${PROJECT_SOURCE_DIR}/scripts/readers/${part} DESTINATION share/triax/scripts/readers)
endforeach()
foreach(reader report overlay compare_checkpoints bisect_runs readers/relay)
  get_filename_component(folder share/triax/scripts/${reader} DIRECTORY)
  get_filename_component(name ${reader} NAME)
  string(REPLACE _ - link triax-${name})
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/${reader}.py DESTINATION ${folder})
  file(CREATE_LINK ../${folder}/${name}.py ${PROJECT_BINARY_DIR}/${link} SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/${link} DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()
install(PROGRAMS ${PROJECT_SOURCE_DIR}/examples/slurm/one_node.sh
  ${PROJECT_SOURCE_DIR}/examples/slurm/one_node_gpus.sh
  ${PROJECT_SOURCE_DIR}/examples/slurm/several_nodes.sh
  ${PROJECT_SOURCE_DIR}/examples/slurm/several_nodes_gpus.sh DESTINATION share/triax/slurm)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/LICENSE
  ${PROJECT_SOURCE_DIR}/NOTICE ${PROJECT_SOURCE_DIR}/LICENSES/CC-BY-4.0.txt
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)  # Debian's name
