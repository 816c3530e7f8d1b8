# SPDX-License-Identifier: Apache-2.0
# Planted conditions of containers and pods. A sanitizer needs /proc, memory and calls, which some
# of them take away.
if(NOT HEARTH_SANITIZE)
  file(GLOB pods_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/pods/*.c)
  list(REMOVE_ITEM pods_sources ${CMAKE_CURRENT_SOURCE_DIR}/pods/memory.c
       ${CMAKE_CURRENT_SOURCE_DIR}/pods/clock.c)
  add_library(pods_clock SHARED pods/clock.c)
  target_link_libraries(pods_clock PRIVATE hearth_build)
  set_target_properties(pods_clock PROPERTIES C_VISIBILITY_PRESET default)
  add_executable(pods ${pods_sources})
  target_link_libraries(pods PRIVATE pods_clock hearth hearth_build)
  add_dependencies(pods hearthd)
  hearth_case(pods.conditions promises COMMAND pods)
  add_executable(pods_memory pods/memory.c)
  target_link_libraries(pods_memory PRIVATE hearth hearth_build)
  add_dependencies(pods_memory hearthd)
  hearth_case(pods.memory promises COMMAND pods_memory)
endif()
