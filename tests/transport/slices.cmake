# SPDX-License-Identifier: Apache-2.0
# Peers that are killed, stopped, cut off or moved under pulls, by seed; slices_run has a thousand of them.
if(TARGET strictfi)
  file(GLOB slices_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/slices_*.c)
  add_executable(slices ${slices_sources})
  hearth_no_kernel_symbols(slices)
  target_include_directories(slices PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
  target_link_libraries(slices PRIVATE hearth_transport hearth_build)
  add_dependencies(slices strictfi hearth_ofi_module)
  foreach(fabric efa worst)
    hearth_case(slices.strict-${fabric} conformance
      COMMAND slices --fabric strict-${fabric} --first 1 --count 10)
    set_property(TEST slices.strict-${fabric} APPEND PROPERTY
      ENVIRONMENT "FI_PROVIDER_PATH=$<TARGET_FILE_DIR:strictfi>")
  endforeach()
endif()
