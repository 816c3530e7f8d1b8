# SPDX-License-Identifier: Apache-2.0
# One suite for every transport: a ctest case per group and backend.
file(GLOB conform_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/conform*.c)
add_executable(conformance ${conform_sources})
hearth_no_kernel_symbols(conformance)
target_link_libraries(conformance PRIVATE hearth_transport_session hearth_transport_loop hearth_build)
# libfabric's own datagrams over TCP: a provider of its own until 1.17.
if(FABRIC_VERSION VERSION_LESS 1.18)
  target_compile_definitions(conformance PRIVATE RDM_PROVIDER="net/rdm")
else()
  target_compile_definitions(conformance PRIVATE RDM_PROVIDER="tcp/rdm")
endif()
set(backends loop tcp tcp-two tcp-key tcp-sealed ofi-tcp ofi-rxm ofi-rdm ofi-shm ucx-tcp ucx-gets)
if(TARGET strictfi)
  foreach(profile efa efa-direct cxi opx verbs shm worst) # all that tests/support/strictfi/profile.c has
    list(APPEND backends ofi-strict-${profile})
  endforeach()
  add_dependencies(conformance strictfi)
endif()
# UCX's own imitation of a network card, over TCP. It asks for no key, so what only a card refuses
# (dereg) is left out; and it ends a process whose peer dies or stays silent (death, stop, session).
set(conform_left_out_ucx-gets dereg death stop session)
foreach(backend ${backends})
  set(group 0)
  foreach(name data messages idle death stop partition post-to-dead isolation access dereg close
      session doors crossing)
    math(EXPR group "${group} + 1")
    if(name IN_LIST conform_left_out_${backend})
      continue()
    endif()
    hearth_case(conformance.${backend}.${name} conformance
      COMMAND conformance --backend ${backend} --group ${group})
    if(TARGET strictfi)
      set_property(TEST conformance.${backend}.${name} APPEND PROPERTY
        ENVIRONMENT "FI_PROVIDER_PATH=$<TARGET_FILE_DIR:strictfi>")
    endif()
    if(backend STREQUAL "ofi-rxm")
      set_property(TEST conformance.${backend}.${name} APPEND PROPERTY
        ENVIRONMENT "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/support/lsan_rxm.supp print_suppressions=0")
    endif()
  endforeach()
endforeach()
# The demands and the chances of `worst` are rolled; more seeds: worst_seeds.sh.
if(TARGET strictfi)
  hearth_case(conformance.ofi-strict-worst.seeds conformance
    COMMAND conformance --backend ofi-strict-worst --seeds 1-20)
  set_property(TEST conformance.ofi-strict-worst.seeds APPEND PROPERTY
    ENVIRONMENT "FI_PROVIDER_PATH=$<TARGET_FILE_DIR:strictfi>")
endif()
