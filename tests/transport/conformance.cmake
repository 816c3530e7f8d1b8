# SPDX-License-Identifier: Apache-2.0
# One suite for every transport: a ctest case per group and backend.
file(GLOB conform_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/conform*.c)
add_executable(conformance ${conform_sources})
target_link_libraries(conformance PRIVATE hearth_transport_session hearth_transport_loop hearth_build)
foreach(backend loop ofi-tcp ofi-rxm ofi-rdm ofi-shm ucx-tcp ucx-posix)
  set(group 0)
  foreach(name data messages idle death stop partition post-to-dead isolation access dereg close
      session doors)
    math(EXPR group "${group} + 1")
    hearth_case(conformance.${backend}.${name} conformance
      COMMAND conformance --backend ${backend} --group ${group})
  endforeach()
endforeach()
