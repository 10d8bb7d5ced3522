# CUDA: found and used if it is there. Leaves triax_has_cuda.
set(TRIAX_CUDA AUTO CACHE STRING "Kernels for NVIDIA GPUs: ON, OFF or AUTO (if nvcc is found)")
set(triax_has_cuda OFF)
if(TRIAX_CUDA AND NOT TRIAX_SANITIZE)  # the kernels themselves run under sanitizers in tests/cuda
  find_program(TRIAX_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(TRIAX_NVCC)
  if(TRIAX_NVCC OR CMAKE_CUDA_COMPILER)
    set(triax_has_cuda ON)
  endif()
endif()
if(TRIAX_CUDA AND NOT TRIAX_CUDA STREQUAL "AUTO" AND NOT triax_has_cuda)
  message(FATAL_ERROR "TRIAX_CUDA is ${TRIAX_CUDA}, but nvcc was not found, or TRIAX_SANITIZE is set "
                      "(nvcc knows no sanitizers)")
endif()
if(NOT triax_has_cuda)
  return()
endif()

# A100 and later by the compiler of the driver; H100 and H200 in their own instructions.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(architectures 90a-real)
  if(CMAKE_BUILD_TYPE MATCHES "Rel")
    set(architectures 80 90a-real)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPUs to compile for")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${TRIAX_NVCC})
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # of the libraries that bring one along, two would be linked
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows nvcc up to C++17
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/no_spills.sh ${CCACHE})
if(NOT CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/no_spills.sh)
endif()

# The .cu files of a folder as an object library; warnings are errors.
function(triax_cuda_kernels target)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE TRIAX_TARGET=device)
  target_compile_options(${target} PRIVATE
    --fmad=false  # as core/CMakeLists.txt has it: fused products are asked for by name
    "SHELL:-Xptxas --warn-on-spills" "SHELL:-Werror cross-execution-space-call,reorder,deprecated-declarations"
    "SHELL:-Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas,-Wno-unused-parameter")
endfunction()
