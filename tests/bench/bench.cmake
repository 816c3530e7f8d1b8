# SPDX-License-Identifier: Apache-2.0
# tests/bench/run builds and runs the benchmarks.
set(bench ${CMAKE_CURRENT_LIST_DIR})
add_library(bench_common STATIC
  ${bench}/common.c ${bench}/copy.c ${bench}/engine.c ${bench}/job.c
  ${bench}/peers.c ${bench}/raw.c ${bench}/side.c ${bench}/tool.c ${bench}/wire.c ${seal})
target_link_libraries(bench_common PUBLIC support PRIVATE hearth_build)
foreach(program save views nodes early reads resume plan pulls latency crowd deaths)
  add_executable(bench_${program} ${bench}/${program}.c)
  target_link_libraries(bench_${program} PRIVATE bench_common hearth_build)
  foreach(needed hearthd hearth_tcp_module hearth_ofi_module hearth_ucx hearth_ucx_impl strictfi)
    if(TARGET ${needed})
      add_dependencies(bench_${program} ${needed})
    endif()
  endforeach()
endforeach()
add_executable(bench_seal ${bench}/seal.c)
target_link_libraries(bench_seal PRIVATE bench_common hearth_build)
add_executable(bench_proof ${bench}/proof.c)
target_link_libraries(bench_proof PRIVATE bench_common hearth_core hearth_build)
add_executable(bench_metadata ${bench}/metadata.c) # for metadata.py
target_link_libraries(bench_metadata PRIVATE hearth_core hearth_build)
if(NOT HEARTH_SANITIZE) # what they measure is of no use under a sanitizer
  hearth_case(bench.plot unit COMMAND ${bench}/plot_test.sh ${PROJECT_BINARY_DIR})
endif()
