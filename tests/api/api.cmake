# SPDX-License-Identifier: Apache-2.0
# What the C API writes, read by others.
if(TARGET hearth_ofi_module) # opened at run time
  add_dependencies(write_container hearth_ofi_module hearth_engine_module)
  hearth_case(api.write_container unit
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/write_container.sh $<TARGET_FILE:write_container>)
endif()
target_sources(test_api_waits PRIVATE ${CMAKE_CURRENT_LIST_DIR}/calls.c ${CMAKE_CURRENT_LIST_DIR}/calls_plain.c)
target_include_directories(test_api_waits PRIVATE ${CMAKE_CURRENT_LIST_DIR})
