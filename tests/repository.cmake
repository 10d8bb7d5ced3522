# Tests of the repository itself: its include rules, its package, its corpus, its scripts.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

add_test(NAME repository.layering
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/layering/check.py ${PROJECT_SOURCE_DIR})
add_test(NAME repository.layering_sees_violations
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/layering/check_test.py)

add_test(NAME repository.setup_script COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_LIST_DIR}/scripts/setup_test.py)
add_test(NAME repository.launch_script COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_LIST_DIR}/scripts/launch_test.py)
foreach(script chart common compare_checkpoints digits gpu_check gpu_goals launch_elastic launch_restarts launch_start
    offline overlay relay report slurm)
  add_test(NAME repository.${script}_script COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_LIST_DIR}/scripts/${script}_test.py)
endforeach()

# The picture of docs/performance.md is that of its tables.
add_test(NAME repository.performance_chart
  COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/bench/chart.py --check)

if(TARGET minigpt)
  add_test(NAME repository.completion COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_LIST_DIR}/scripts/completion_test.py $<TARGET_FILE:minigpt> ${PROJECT_SOURCE_DIR})
endif()

# Figures of published papers, computed again: docs/reproductions.md.
if(TARGET minigpt AND TARGET llama AND TARGET test_examples AND NOT TRIAX_SANITIZE)
  add_test(NAME repository.reproductions COMMAND ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/scripts/reproduce_test.py $<TARGET_FILE_DIR:minigpt>)
  set_tests_properties(repository.reproductions PROPERTIES PROCESSORS 2 TIMEOUT 600 LABELS processes)
endif()

set(triax_jargon_found)
if(triax_jargon)
  set(triax_jargon_found ${triax_jargon})
endif()
add_test(NAME repository.corpus COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_LIST_DIR}/scripts/corpus_test.py
  ${TRIAX_CORPUS} ${PROJECT_SOURCE_DIR} ${triax_jargon_found})

# The faults of scripts/faults.sh, which compiles each and is not a test, can still be planted.
add_test(NAME repository.faults_can_be_planted
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/faults/check.py ${PROJECT_SOURCE_DIR})

# The recipes of CONTRIBUTING.md, applied to a copy of the repository.
if(NOT TRIAX_SANITIZE)
  add_test(NAME repository.recipes COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_LIST_DIR}/recipes/recipes_test.py ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/recipes ${CMAKE_CXX_COMPILER})
  set_tests_properties(repository.recipes PROPERTIES PROCESSORS 2 TIMEOUT 1200)
endif()

# An unoptimised build, whose inline functions are those of each object: parity, and ranks as processes.
if(NOT TRIAX_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND TARGET minigpt)
  set(debug ${PROJECT_BINARY_DIR}/debug)
  set(options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_BUILD_TYPE=Debug -DTRIAX_CPU_LEVELS=native
    -DTRIAX_CUDA=OFF -DTRIAX_TESTS=OFF -DTRIAX_MPI=${TRIAX_MPI} -DCMAKE_UNITY_BUILD=ON
    -DCMAKE_UNITY_BUILD_BATCH_SIZE=12)
  add_test(NAME debug.build COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${PROJECT_SOURCE_DIR} ${debug}
    --build-generator ${CMAKE_GENERATOR} --build-options ${options} --build-target minigpt)
  set_tests_properties(debug.build PROPERTIES FIXTURES_SETUP debug PROCESSORS 2 TIMEOUT 1800
    ENVIRONMENT "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1;CCACHE_IGNOREOPTIONS=-fmacro-prefix-map=*")
  add_test(NAME debug.parity COMMAND ${debug}/bin/minigpt parity --mesh 2x2x2 --zero 3 --steps 2 --layers 2 --width 16
    --heads 4 --context 8 --micro-batch 1 --global-batch 4)
  set_tests_properties(debug.parity PROPERTIES FIXTURES_REQUIRED debug PROCESSORS 2 TIMEOUT 120)
  if(MPIRUN AND NOT TRIAX_MPI STREQUAL "OFF")
    add_test(NAME debug.no_run COMMAND ${CMAKE_COMMAND} -E rm -rf ${debug}/run)  # of the tests before
    set_tests_properties(debug.no_run PROPERTIES FIXTURES_SETUP debug_run)
    add_test(NAME debug.two_processes COMMAND ${MPIRUN} -np 2 --allow-run-as-root --oversubscribe --bind-to none
      ${debug}/bin/minigpt train --layers 1 --width 16 --heads 2 --context 8 --tp 2 --steps 3 --warmup 0 --val-every 0
      --val-fraction 0.01 --micro-batch 2 --global-batch 8 --out ${debug}/run)
    set_tests_properties(debug.two_processes PROPERTIES FIXTURES_REQUIRED "debug;debug_run" PROCESSORS 2 TIMEOUT 60
      LABELS processes PASS_REGULAR_EXPRESSION "finished after step 3")
  endif()
endif()

# What no_spills.sh takes for a kernel that spills, and for one that may.
foreach(argument f d)
  add_test(NAME repository.spills_of_${argument}_kernels COMMAND
    ${PROJECT_SOURCE_DIR}/cmake/no_spills.sh sh -c
    "echo \"ptxas warning : Registers are spilled to local memory in function '_Z1kI${argument}EvT_', 8\" >&2")
endforeach()
set_tests_properties(repository.spills_of_f_kernels PROPERTIES WILL_FAIL TRUE)

# The machine code of the kernels, and of some that were made badly on purpose.
if(triax_has_cuda)
  triax_cuda_kernels(triax_sass_planted sass/planted.cu)
  set_target_properties(triax_sass_planted PROPERTIES CUDA_ARCHITECTURES 90a-real)
  set(check ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/sass/check.py)
  add_test(NAME cuda.machine_code COMMAND ${check} ${CMAKE_CURRENT_LIST_DIR}/sass/kernels.txt
           $<TARGET_OBJECTS:triax_cuda> COMMAND_EXPAND_LISTS)
  add_test(NAME cuda.machine_code_planted COMMAND ${Python3_EXECUTABLE}
           ${CMAKE_CURRENT_LIST_DIR}/sass/planted_test.py $<TARGET_OBJECTS:triax_sass_planted>)
  set_tests_properties(cuda.machine_code cuda.machine_code_planted PROPERTIES
    SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()

# A user's project against an installation, and with triax as a part of it (configured only:
# building would compile everything once more).
if(TRIAX_INSTALL)
  set(prefix ${PROJECT_BINARY_DIR}/package/prefix)
  set(consumer ${CMAKE_CURRENT_LIST_DIR}/package)
  set(options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE})
  if(TRIAX_SANITIZE)
    string(REPLACE ";" "," sanitizers "${TRIAX_SANITIZE}")
    list(APPEND options -DCMAKE_CXX_FLAGS=-fsanitize=${sanitizers})
  endif()
  if(CCACHE)
    list(APPEND options -DCMAKE_CXX_COMPILER_LAUNCHER=${CCACHE})
  endif()
  add_test(NAME package.install
    COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
  add_test(NAME package.consumer
    COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${consumer} ${PROJECT_BINARY_DIR}/package/build
      --build-generator ${CMAKE_GENERATOR} --build-options ${options} -DCMAKE_PREFIX_PATH=${prefix}
      --test-command consumer)
  find_program(triax_pkg_config pkg-config NO_CACHE)
  if(triax_pkg_config AND NOT TRIAX_SANITIZE)
    add_test(NAME package.pkg_config COMMAND sh -c "PKG_CONFIG_PATH=$(find ${prefix} -name pkgconfig) && export PKG_CONFIG_PATH \
      && ${CMAKE_CXX_COMPILER} -std=c++20 -I${PROJECT_BINARY_DIR}/package/build/own ${consumer}/consumer.cpp \
      -o ${prefix}/by_pkg_config $(pkg-config --cflags --libs triax) && ${prefix}/by_pkg_config && pkg-config --modversion triax")
    set_tests_properties(package.pkg_config PROPERTIES FIXTURES_REQUIRED consumer
      PASS_REGULAR_EXPRESSION "^${PROJECT_VERSION}|\n${PROJECT_VERSION}")
  endif()
  add_test(NAME package.subproject
    COMMAND ${CMAKE_COMMAND} --fresh -S ${consumer} -B ${PROJECT_BINARY_DIR}/package/subproject
      -G ${CMAKE_GENERATOR} ${options} -DTRIAX_SOURCE=${PROJECT_SOURCE_DIR} -L)
  set_tests_properties(package.install PROPERTIES FIXTURES_SETUP package)
  # The preset for installing has programs, and neither tests nor benchmarks.
  set(preset ${PROJECT_BINARY_DIR}/package/preset)
  add_test(NAME package.preset COMMAND sh -c
    "cmake --preset install -B ${preset} -DTRIAX_CUDA=OFF >/dev/null && cmake --build ${preset} --target help"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(package.preset PROPERTIES PASS_REGULAR_EXPRESSION "minigpt: phony"
    FAIL_REGULAR_EXPRESSION "test_core|bench_kernels|figures")
  add_test(NAME package.launcher COMMAND ${prefix}/bin/triax-launch --help)
  add_test(NAME package.elastic_launcher COMMAND sh -c
    "${prefix}/bin/triax-launch -n 2:1 --restarts 1 --elastic -- true --out run 2>&1 | grep MIN:MAX")
  add_test(NAME package.minigpt COMMAND ${prefix}/bin/minigpt train --help)
  add_test(NAME package.manual COMMAND sh -c "cd ${prefix}/share && grep -q 'sequence..parallel' man/man1/minigpt.1 \
    && test -e bash-completion/completions/triax-llama -a -e zsh/site-functions/_triax")
  add_test(NAME package.slurm_scripts COMMAND sh -c "cd ${prefix}/share/triax/slurm && test -x one_node.sh \
    -a -x one_node_gpus.sh -a -x several_nodes.sh -a -x several_nodes_gpus.sh")
  add_test(NAME package.readers COMMAND sh -c "cd ${prefix}/bin && ./triax-report --help && ./triax-overlay --help \
    && ./triax-compare-checkpoints --help && ./triax-bisect-runs --help && ./triax-relay --help && ./triax-report none --hardware h100")
  set_tests_properties(package.readers PROPERTIES PASS_REGULAR_EXPRESSION
    "triax: error 66: report: there is no none" FAIL_REGULAR_EXPRESSION Traceback)
  set_tests_properties(package.launcher package.elastic_launcher package.minigpt package.manual package.slurm_scripts
    package.readers PROPERTIES FIXTURES_REQUIRED package)
  set_tests_properties(package.consumer PROPERTIES FIXTURES_REQUIRED package FIXTURES_SETUP consumer)
  set(llama ${PROJECT_BINARY_DIR}/package/build/train_llama)
  add_test(NAME package.llama_trains COMMAND sh -c
    "rm -rf ${prefix}/run && ${llama} train --comm threads --ranks 8 --dp 2 --pp 2 --tp 2 --zero 1 \
     --out ${prefix}/run && test -s ${prefix}/run/metrics.jsonl && test -d ${prefix}/run/step-10 && \
     ${llama} train --comm threads --ranks 2 --pp 2 --steps 12 --out ${prefix}/run --resume auto")
  add_test(NAME package.llama_parity
    COMMAND ${llama} parity --mesh 2x2x2 --zero 3 --steps 2 --sequence-parallel)
  set_tests_properties(package.llama_trains package.llama_parity PROPERTIES
    FIXTURES_REQUIRED consumer PROCESSORS 2)
  set_tests_properties(package.llama_trains PROPERTIES FIXTURES_SETUP trained_llama)
  if(MPIRUN AND NOT TRIAX_MPI STREQUAL "OFF")
    add_test(NAME package.predict_over_mpi COMMAND sh -c
      "cd ${PROJECT_BINARY_DIR}/package/build && alone=$(./predict ${prefix}/run) && two=$(${MPIRUN} -np 2 \
       --allow-run-as-root --oversubscribe --bind-to none ./predict ${prefix}/run) && \
       echo \"$alone\" && test -n \"$alone\" && test \"$alone\" = \"$two\"")
    set_tests_properties(package.predict_over_mpi PROPERTIES FIXTURES_REQUIRED "consumer;trained_llama"
      PROCESSORS 2 TIMEOUT 60 LABELS processes)
  endif()
  # The project of docs/research.md, and the commands there.
  set(research ${PROJECT_BINARY_DIR}/package/research)
  add_test(NAME package.research
    COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${PROJECT_SOURCE_DIR}/examples/research ${research}
      --build-generator ${CMAKE_GENERATOR} --build-options ${options} -DCMAKE_PREFIX_PATH=${prefix})
  set_tests_properties(package.research PROPERTIES FIXTURES_REQUIRED package FIXTURES_SETUP research)
  add_test(NAME package.research_runs COMMAND ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/docs/commands_test.py ${PROJECT_SOURCE_DIR} ${research} docs/research.md)
  set_tests_properties(package.research_runs PROPERTIES FIXTURES_REQUIRED research PROCESSORS 2 LABELS processes)
  if(NOT TRIAX_SANITIZE)
    add_test(NAME package.headers
      COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR}/package/build --target headers)
    set_tests_properties(package.headers PROPERTIES FIXTURES_REQUIRED consumer PROCESSORS 2 TIMEOUT 900)
  endif()
  set_tests_properties(package.subproject PROPERTIES
    FAIL_REGULAR_EXPRESSION "TRIAX_(TESTS|EXAMPLES|INSTALL):BOOL=ON")
endif()
