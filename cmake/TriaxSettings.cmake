# What every target of triax is built with, and the libraries it stands on.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
elseif(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  message(WARNING "triax: without a build type it is compiled unoptimised and trains several times slower; "
                  "expected -DCMAKE_BUILD_TYPE=Release")
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

set(TRIAX_SANITIZE "" CACHE STRING "Sanitizers for every target, such as address;undefined or thread")
if(TRIAX_SANITIZE)
  string(REPLACE ";" "," sanitizers "${TRIAX_SANITIZE}")
  # Lines but no variables: at full optimisation and debug information the kernels take minutes each.
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer
    -O1 -g1)
  add_link_options(-fsanitize=${sanitizers})
endif()

# Kernels and reductions ask for -O3 themselves; the rest is compiled sooner without it.
add_compile_options($<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O2>)

# Loops marked "omp simd" are vectorised; threads are a team of our own (core/shared/team.h).
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fopenmp-simd>)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# Libraries are static unless BUILD_SHARED_LIBS asks for others, which minor versions until 1.0 keep apart.
function(triax_shared target)
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} DEFINE_SYMBOL ""
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    INSTALL_RPATH $ORIGIN INSTALL_RPATH_USE_LINK_PATH TRUE)  # they lie beside each other
endfunction()

# Headers are included as "triax/core/tensor.h", from the repository as from an installed triax.
set(triax_headers ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${triax_headers})
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${triax_headers}/triax SYMBOLIC)

# A library for one folder: its sources and public headers, linked to the folders on its left.
function(triax_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(triax_${name} ${ARG_SOURCES})
  triax_shared(triax_${name})
  add_library(triax::${name} ALIAS triax_${name})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS *.h)
  # Of the backends and of what moves the bytes of each kind of communicator nothing is installed
  # but the communicators themselves; nor what reads JSON.
  set(internal ${headers})
  list(FILTER internal INCLUDE REGEX
    "/core/(cpu|cuda)/|/core/io/json|/program/deepspeed/|/comm/(threads|processes|gpu)/")
  list(FILTER internal EXCLUDE REGEX "/comm/.*_comm\\.h$")
  list(REMOVE_ITEM headers ${internal} "")
  set(installed)
  foreach(header ${headers})
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    list(APPEND installed ${triax_headers}/triax/${header})
  endforeach()
  target_sources(triax_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${triax_headers} FILES ${installed})
  target_compile_features(triax_${name} PUBLIC cxx_std_20)
  target_link_libraries(triax_${name} PUBLIC ${ARG_LINKS})
  triax_warnings(triax_${name})
endfunction()

# Errors name places as the reader knows them: relative to the repository, also where ccache names a
# source as the compiler's working directory sees it (CCACHE_BASEDIR).
function(triax_warnings target)
  set(works_in ${CMAKE_CURRENT_BINARY_DIR})
  if(CMAKE_GENERATOR MATCHES "Ninja")
    set(works_in ${CMAKE_BINARY_DIR})
  endif()
  cmake_path(RELATIVE_PATH PROJECT_SOURCE_DIR BASE_DIRECTORY ${works_in} OUTPUT_VARIABLE from_there)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<BOOL:${CMAKE_UNITY_BUILD}>:-Wno-shadow> $<$<BOOL:${CMAKE_UNITY_BUILD}>:-Wno-subobject-linkage>
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${triax_headers}/triax/=
    -fmacro-prefix-map=${from_there}/= -fmacro-prefix-map=include/triax/=)
endfunction()
