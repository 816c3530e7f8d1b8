# SPDX-License-Identifier: Apache-2.0
# tests/bench/run builds and runs the benchmarks; only what it asserts about page faults is a test.
set(bench ${CMAKE_CURRENT_LIST_DIR})
add_library(bench_common STATIC ${bench}/common.c ${bench}/copy.c ${bench}/engine.c)
target_link_libraries(bench_common PUBLIC hearth PRIVATE hearth_build)
add_executable(bench_save ${bench}/save.c)
target_link_libraries(bench_save PRIVATE bench_common hearth_build)
add_dependencies(bench_save hearthd)
