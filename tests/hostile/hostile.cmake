# SPDX-License-Identifier: Apache-2.0
# Hostile peers: a little of each in every ctest, more on demand (tests/hostile/run).
file(GLOB hostile_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(hostile ${hostile_sources})
hearth_no_kernel_symbols(hostile)
target_link_libraries(hostile PRIVATE support hearth_build)
if(FABRIC_VERSION VERSION_LESS 1.18)
  target_compile_definitions(hostile PRIVATE RDM_PROVIDER="net/rdm")
else()
  target_compile_definitions(hostile PRIVATE RDM_PROVIDER="tcp/rdm")
endif()
foreach(module hearth_tcp_module hearth_ofi_module hearth_ucx hearth_ucx_impl) # opened at run time
  if(TARGET ${module})
    add_dependencies(hostile ${module})
  endif()
endforeach()
hearth_case(hostile.liar hostile COMMAND hostile --backend liar --frames 2000)
foreach(backend tcp ofi-tcp ofi-rdm ucx-tcp)
  hearth_case(hostile.${backend} hostile COMMAND hostile --backend ${backend} --frames 2000)
endforeach()
# libfabric loses who is about to connect when an endpoint is closed.
set_property(TEST hostile.ofi-rdm APPEND PROPERTY
  ENVIRONMENT "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/support/lsan_rxm.supp print_suppressions=0")
