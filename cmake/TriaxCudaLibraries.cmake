# NVIDIA's libraries beside the toolkit: the targets CUDA::cublasLt, triax::cudnn and triax::nccl,
# each if it is there, and TRIAX_CUDNN_VERSION, TRIAX_NCCL_VERSION. They are looked for where CMake
# looks, in the toolkit, and in the packages of the python3 of PATH (pip install nvidia-cudnn-cu13,
# or PyTorch): nvidia/cu13/ or, older, nvidia/cublas/ and the like, each with include/ and lib/. No
# python package has the names without a version that linkers look for. Also part of an installed
# triax, whose users link what it links.
set(triax_wheels "")
execute_process(COMMAND python3 -c "import nvidia; print(*nvidia.__path__, sep=';')"
  OUTPUT_VARIABLE triax_wheels OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)

# A header and a library that lie together: target, HEADER, NAMES, and FOLDERS of python's nvidia.
function(triax_find_cuda_library target)
  cmake_parse_arguments(ARG "" "HEADER" "NAMES;FOLDERS" ${ARGN})
  if(TARGET ${target})
    return()
  endif()
  set(triax_header NOTFOUND)  # what is set is not looked for
  set(triax_library NOTFOUND)
  find_path(triax_header ${ARG_HEADER} HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CACHE)
  find_library(triax_library NAMES ${ARG_NAMES} HINTS ${CUDAToolkit_LIBRARY_DIR} NO_CACHE)
  foreach(wheel ${triax_wheels})
    foreach(folder ${ARG_FOLDERS})
      if(NOT triax_header OR NOT triax_library)
        set(triax_header NOTFOUND)
        set(triax_library NOTFOUND)
        find_path(triax_header ${ARG_HEADER} PATHS ${wheel}/${folder}/include NO_CACHE NO_DEFAULT_PATH)
        find_library(triax_library NAMES ${ARG_NAMES} PATHS ${wheel}/${folder}/lib NO_CACHE
                     NO_DEFAULT_PATH)
      endif()
    endforeach()
  endforeach()
  if(triax_header AND triax_library)
    add_library(${target} SHARED IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${triax_library}
      INTERFACE_INCLUDE_DIRECTORIES "${triax_header};${CUDAToolkit_INCLUDE_DIRS}")
  endif()
endfunction()

# MAJOR.MINOR from the defines NAME_MAJOR and NAME_MINOR of a target's header; empty without it.
function(triax_version_of target header name result)
  set(${result} "" PARENT_SCOPE)
  if(TARGET ${target})
    get_target_property(include ${target} INTERFACE_INCLUDE_DIRECTORIES)
    list(GET include 0 include)
    file(STRINGS ${include}/${header} lines REGEX "define ${name}_(MAJOR|MINOR) +[0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." version)
    set(${result} "${version}" PARENT_SCOPE)
  endif()
endfunction()

triax_find_cuda_library(CUDA::cublasLt HEADER cublasLt.h
  NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 FOLDERS cu13 cublas)
triax_find_cuda_library(triax::cudnn HEADER cudnn.h NAMES cudnn libcudnn.so.9 FOLDERS cudnn)
triax_find_cuda_library(triax::nccl HEADER nccl.h NAMES nccl libnccl.so.2 FOLDERS nccl)
triax_version_of(triax::cudnn cudnn_version.h CUDNN TRIAX_CUDNN_VERSION)
triax_version_of(triax::nccl nccl.h NCCL TRIAX_NCCL_VERSION)
