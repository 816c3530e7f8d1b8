# SPDX-License-Identifier: Apache-2.0
# What is no C unit test: headers alone, lints, consumers, and the suites that bring their own
# list (conformance, simulator, clusters, command line).

# Every header compiles alone, twice; the public ones as C++ too.
file(GLOB_RECURSE public RELATIVE ${PROJECT_SOURCE_DIR}/include CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/*.h)
foreach(folder core transport replication loader engine client)
  file(GLOB_RECURSE found RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  list(APPEND internal ${found})
endforeach()
list(FILTER internal EXCLUDE REGEX "^transport/(ofi|ucx)/") # they need other libraries'
foreach(header ${public} ${internal})
  string(MAKE_C_IDENTIFIER ${header} base)
  set(text "#include <${header}>\n#include <${header}>\ntypedef int not_empty;\n")
  file(CONFIGURE OUTPUT alone/${base}.c CONTENT "${text}")
  list(APPEND alone ${CMAKE_CURRENT_BINARY_DIR}/alone/${base}.c)
  if(header IN_LIST public)
    file(CONFIGURE OUTPUT alone/${base}.cc CONTENT "${text}")
    list(APPEND alone ${CMAKE_CURRENT_BINARY_DIR}/alone/${base}.cc)
  endif()
endforeach()
add_library(headers OBJECT ${alone})
target_link_libraries(headers PRIVATE hearth_build)

set(lint ${CMAKE_CURRENT_SOURCE_DIR}/lint)
hearth_case(lint.layers lint TIMEOUT 300 COMMAND ${lint}/layers.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.layers_fails lint TIMEOUT 300
  COMMAND ${lint}/layers_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.symbols lint COMMAND ${lint}/symbols.sh library $<TARGET_FILE:hearth>)
hearth_case(lint.symbols_fails lint
  COMMAND ${lint}/symbols_test.sh ${lint}/symbols.sh ${CMAKE_C_COMPILER})
hearth_case(lint.headers lint TIMEOUT 300 COMMAND ${lint}/headers.sh ${PROJECT_SOURCE_DIR}/include)
hearth_case(lint.headers_fails lint TIMEOUT 300
  COMMAND ${lint}/headers_test.sh ${lint}/headers.sh ${PROJECT_SOURCE_DIR}/include)
hearth_case(lint.format lint COMMAND ${lint}/format.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.readme lint COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/consumer/readme.sh --check
  adapters/pytorch/README.md docs/start/c.md)
hearth_case(lint.pages lint COMMAND ${lint}/pages.py ${PROJECT_SOURCE_DIR})
hearth_case(lint.runbook lint COMMAND ${lint}/runbook.py ${PROJECT_SOURCE_DIR})
hearth_case(lint.runbook_fails lint COMMAND ${lint}/runbook_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.pages_fails lint TIMEOUT 300
  COMMAND ${lint}/pages_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.site lint TIMEOUT 300 COMMAND ${PROJECT_SOURCE_DIR}/docs/build --strict)
hearth_case(lint.site_fails lint TIMEOUT 300 COMMAND ${lint}/site_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.snippets lint COMMAND ${lint}/snippets.py ${PROJECT_SOURCE_DIR}
  ${CMAKE_C_COMPILER} $<TARGET_FILE_DIR:hearth_cli>)
hearth_case(lint.snippets_fails lint COMMAND ${lint}/snippets_test.sh ${PROJECT_SOURCE_DIR}
  ${CMAKE_C_COMPILER} $<TARGET_FILE_DIR:hearth_cli>)
hearth_case(lint.drawn lint
  COMMAND ${PROJECT_SOURCE_DIR}/docs/site/draw.py ${PROJECT_SOURCE_DIR} --check)
hearth_case(lint.drawn_fails lint COMMAND ${lint}/drawn_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.spelling lint COMMAND ${lint}/spelling.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.spelling_fails lint COMMAND ${lint}/spelling_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.spdx lint COMMAND ${lint}/spdx.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.scripts lint COMMAND ${lint}/scripts.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.packages lint COMMAND ${lint}/packages.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.packages_fails lint COMMAND ${lint}/packages_test.sh ${PROJECT_SOURCE_DIR})
if(NOT HEARTH_SANITIZE) # where all tests are there
  foreach(script docs docs_test)
    string(REPLACE docs_test docs_fails name ${script})
    hearth_case(lint.${name} lint TIMEOUT 300
      COMMAND ${lint}/${script}.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  endforeach()
  hearth_case(lint.manual lint TIMEOUT 300
    COMMAND ${lint}/manual.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  hearth_case(lint.manual_fails lint TIMEOUT 300
    COMMAND ${lint}/manual_test.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  hearth_case(lint.options lint
    COMMAND ${lint}/options.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  hearth_case(lint.options_fails lint TIMEOUT 300
    COMMAND ${lint}/options_test.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endif()
hearth_case(lint.calls lint COMMAND ${lint}/calls.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
hearth_case(lint.picture lint COMMAND ${lint}/picture.py ${PROJECT_SOURCE_DIR})
hearth_case(lint.picture_fails lint COMMAND ${lint}/picture_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.criteria_fails lint
  COMMAND ${lint}/criteria_test.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER})
hearth_case(lint.decoders lint COMMAND ${lint}/decoders.py ${PROJECT_SOURCE_DIR})
hearth_case(lint.decoders_fails lint COMMAND ${lint}/decoders_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.opens lint COMMAND ${lint}/opens.py ${PROJECT_SOURCE_DIR})
hearth_case(lint.opens_fails lint COMMAND ${lint}/opens_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.tensors lint COMMAND ${lint}/tensors.py ${PROJECT_SOURCE_DIR})
hearth_case(lint.tensors_fails lint COMMAND ${lint}/tensors_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.model lint COMMAND ${lint}/model.py ${PROJECT_SOURCE_DIR})
hearth_case(lint.handshake lint COMMAND ${PROJECT_SOURCE_DIR}/tests/transport/handshake_vectors.py
    ${PROJECT_SOURCE_DIR}/tests/data/handshake.tsv)
hearth_case(lint.model_fails lint COMMAND ${lint}/model_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.mutate lint COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mutate/run --must --list) # the text of each is still there
hearth_case(lint.mutate_fails lint COMMAND ${lint}/mutate_test.sh ${PROJECT_SOURCE_DIR})
hearth_case(lint.calls_fails lint COMMAND ${lint}/calls_test.sh ${lint}/calls.py ${CMAKE_C_COMPILER})
if(NOT HEARTH_SANITIZE AND TARGET hearth_ofi_module) # its planted scenarios need a transport
  hearth_case(lint.run_fails lint COMMAND ${lint}/run_test.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endif()
hearth_case(lint.tidy lint TIMEOUT 900
  COMMAND ${lint}/tidy.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
hearth_case(lint.tidy_fails lint COMMAND ${lint}/tidy_test.sh ${PROJECT_SOURCE_DIR})
foreach(folder . transport/tcp transport/ofi transport/ucx)
  get_property(targets DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL MODULE_LIBRARY)
      hearth_case(lint.symbols_${target} lint
        COMMAND ${lint}/symbols.sh module $<TARGET_FILE:${target}>)
    endif()
  endforeach()
endforeach()

set(hardened $<TARGET_FILE:hearth> $<TARGET_FILE:hearth_cli> $<TARGET_FILE:hearthd>)
foreach(target hearth_engine_module hearth_tcp_module hearth_ofi_module hearth_ucx hearth_ucx_impl)
  if(TARGET ${target})
    list(APPEND hardened $<TARGET_FILE:${target}>)
  endif()
endforeach()

# The models of commit and recovery; it builds and runs two at once.
hearth_case(model.quick model TIMEOUT 300 COMMAND ${PROJECT_SOURCE_DIR}/docs/model/check.sh)
set_tests_properties(model.quick PROPERTIES PROCESSORS 2)

# What is installed heeds no test; a build for tests does, and says so here.
hearth_case(lint.points_fails lint
  COMMAND ${lint}/points_test.sh ${lint}/points.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER})
if(NOT HEARTH_POINTS)
  hearth_case(lint.points lint COMMAND ${lint}/points.sh ${hardened})
endif()

# A sanitized library asks its users for the sanitizer; nobody installs one.
if(NOT HEARTH_SANITIZE)
  if(BUILD_SHARED_LIBS AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug") # as it is installed
    hearth_case(lint.hardening lint COMMAND ${lint}/hardening.sh ${hardened})
  endif()
  hearth_case(lint.hardening_fails lint
    COMMAND ${lint}/hardening_test.sh ${lint}/hardening.sh ${CMAKE_C_COMPILER})
  hearth_case(lint.abi lint COMMAND ${lint}/abi.sh ${PROJECT_SOURCE_DIR} $<TARGET_FILE:hearth>)
  hearth_case(lint.abi_fails lint
    COMMAND ${lint}/abi_test.sh ${lint}/abi.sh ${CMAKE_C_COMPILER})
  hearth_case(consumer consumer COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.sh
    ${PROJECT_BINARY_DIR} ${CMAKE_INSTALL_LIBDIR} ${CMAKE_C_COMPILER})
endif()

# Of the module what needs no libfabric.
target_sources(test_transport_providers PRIVATE ${PROJECT_SOURCE_DIR}/transport/ofi/providers.c
  ${PROJECT_SOURCE_DIR}/transport/ofi/look.c)

include(core/metadata.cmake OPTIONAL)
include(transport/conformance.cmake OPTIONAL)
include(sim/sim.cmake OPTIONAL)
include(cluster/cluster.cmake OPTIONAL)
include(api/api.cmake OPTIONAL)
include(gpu/gpu.cmake OPTIONAL)
include(cli/cli.cmake OPTIONAL)
include(promises/promises.cmake OPTIONAL)
include(pods/pods.cmake OPTIONAL)
include(hostile/hostile.cmake OPTIONAL)
include(bench/bench.cmake OPTIONAL)
include(reshard/reshard.cmake OPTIONAL)

# A rank of tests/install/slurm.sh.
add_executable(slurm_job ${CMAKE_CURRENT_SOURCE_DIR}/install/slurm_job.c)
target_link_libraries(slurm_job PRIVATE hearth hearth_build)
hearth_case(install.slurm install TIMEOUT 300 COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/slurm.sh ${PROJECT_BINARY_DIR})
