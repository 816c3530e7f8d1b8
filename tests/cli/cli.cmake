# SPDX-License-Identifier: Apache-2.0
# Modules with a library that is made up, for tests of `hearth doctor net`.
foreach(transport ofi ucx tcp)
  add_library(made_up_${transport} MODULE ${CMAKE_CURRENT_LIST_DIR}/made_up_library.c)
  target_link_libraries(made_up_${transport} PRIVATE hearth_build)
  target_compile_definitions(made_up_${transport} PRIVATE TRANSPORT="${transport}")
  set_target_properties(made_up_${transport} PROPERTIES PREFIX "" OUTPUT_NAME hearth-${transport}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/made-up)
  add_dependencies(test_cli_doctor made_up_${transport})
endforeach()

target_sources(test_cli_what_if PRIVATE ${PROJECT_SOURCE_DIR}/cli/losses.c)

# The examples of the manual's section 1, typed on a job of two nodes.
add_executable(cli_manual ${CMAKE_CURRENT_LIST_DIR}/manual_job.c)
target_link_libraries(cli_manual PRIVATE hearth hearth_build)
add_dependencies(cli_manual hearthd hearth_cli)
hearth_case(cli.manual unit TIMEOUT 300
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/manual.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
hearth_case(cli.quiet unit TIMEOUT 300
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/quiet.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

# Two nodes, of which one stands still, is back, and is killed: what status, nodes and saves answer.
hearth_case(cli.night unit TIMEOUT 300
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/night.py ${PROJECT_BINARY_DIR})

# A night on call, as docs/operate/a-night.md tells it.
add_executable(cli_a_night ${CMAKE_CURRENT_LIST_DIR}/a_night_job.c)
target_link_libraries(cli_a_night PRIVATE hearth hearth_build)
add_dependencies(cli_a_night hearthd hearth_cli)
hearth_case(cli.a_night unit TIMEOUT 300
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/a_night.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

# Ranks that save GPU memory, over the driver of the tests.
target_link_libraries(test_cli_pinned PRIVATE fakegpu)
add_dependencies(test_cli_pinned hearthd hearth_cli)

# The metrics of a job of two nodes, against their page.
hearth_case(cli.metrics unit TIMEOUT 120
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/metrics.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

# The state of the clock, for tests of `hearth doctor`.
add_library(fake_clock MODULE ${CMAKE_CURRENT_LIST_DIR}/fake_clock.c)
target_link_libraries(fake_clock PRIVATE hearth_build)
set_target_properties(fake_clock PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/made-up)
add_dependencies(test_cli_checkup fake_clock hearthd hearth_cli hearth_tcp_module)

# The pool that a job makes, and the one that `hearth plan` says.
add_executable(planned_job ${CMAKE_CURRENT_LIST_DIR}/planned_job.c)
target_link_libraries(planned_job PRIVATE hearth hearth_build)
add_dependencies(planned_job hearthd hearth_cli)
hearth_case(cli.planned unit TIMEOUT 300
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/plan.py ${PROJECT_BINARY_DIR})

# Debian's Prometheus watches a job, faults are planted in it, and alerts fire.
hearth_case(cli.monitoring unit TIMEOUT 300
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/monitoring.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

# `hearth what-if` of a node whose coordinator answers, and stands still.
hearth_case(cli.what_if_stopped unit TIMEOUT 200
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/what_if.py ${PROJECT_BINARY_DIR})

# `hearth upgrade` with programs that are newer, older, broken or not there.
hearth_case(cli.upgrade unit TIMEOUT 200
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/upgrade.py ${PROJECT_BINARY_DIR})
