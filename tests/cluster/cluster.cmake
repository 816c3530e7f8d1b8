# SPDX-License-Identifier: Apache-2.0
# tests/cluster/run: real processes on machines of their own. It brings its own list and budget.
file(GLOB cluster_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cluster/*.c)
list(REMOVE_ITEM cluster_sources ${CMAKE_CURRENT_SOURCE_DIR}/cluster/job.c)
add_executable(cluster ${cluster_sources} ${CMAKE_CURRENT_SOURCE_DIR}/support/engines.c)
target_include_directories(cluster PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(cluster PRIVATE hearth_core hearth_build)
add_executable(cluster_job ${CMAKE_CURRENT_SOURCE_DIR}/cluster/job.c)
target_link_libraries(cluster_job PRIVATE hearth hearth_build)
add_dependencies(cluster cluster_job hearthd hearth_cli)
foreach(folder tcp ofi ucx) # a backend without its library is left out
  get_property(modules DIRECTORY ${PROJECT_SOURCE_DIR}/transport/${folder} PROPERTY BUILDSYSTEM_TARGETS)
  if(modules)
    add_dependencies(cluster ${modules})
  endif()
endforeach()
