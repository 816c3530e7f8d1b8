# SPDX-License-Identifier: Apache-2.0
# What the C API writes, read by others.
if(TARGET hearth_ofi_module) # opened at run time
  add_dependencies(write_container hearth_ofi_module hearth_engine_module)
  hearth_case(api.write_container unit
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/write_container.sh $<TARGET_FILE:write_container>)
endif()
target_sources(test_api_waits PRIVATE ${CMAKE_CURRENT_LIST_DIR}/calls.c ${CMAKE_CURRENT_LIST_DIR}/calls_plain.c)
target_include_directories(test_api_waits PRIVATE ${CMAKE_CURRENT_LIST_DIR})

# The blocks of C in the pages for users.
set(pages docs/start/c.md docs/use/loading.md docs/use/recovery.md)
list(TRANSFORM pages PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE page_files)
set(snippets ${PROJECT_SOURCE_DIR}/tests/lint/snippets.py)
set(blocks ${CMAKE_CURRENT_BINARY_DIR}/pages/pages_blocks.h)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/pages)
add_custom_command(OUTPUT ${blocks}
  COMMAND ${snippets} ${PROJECT_SOURCE_DIR} --c-run ${pages} > ${blocks}
  DEPENDS ${snippets} ${page_files} VERBATIM)
add_executable(pages ${CMAKE_CURRENT_LIST_DIR}/pages.c ${blocks})
target_include_directories(pages PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/pages)
target_link_libraries(pages PRIVATE hearth::hearth hearth_build)
foreach(module hearth_engine_module hearth_tcp_module) # opened at run time
  if(TARGET ${module})
    add_dependencies(pages ${module})
  endif()
endforeach()
hearth_case(api.pages unit COMMAND ${CMAKE_CURRENT_LIST_DIR}/pages.sh $<TARGET_FILE:pages>)

# Saves and loads of GPU memory, over the driver of the tests.
set(gpu_units gpu gpu_wrong gpu_pace gpu_sizes gpu_example gpu_load gpu_load_order gpu_load_pins
  gpu_load_wrong gpu_load_large gpu_cost gpu_foreign)
foreach(unit ${gpu_units})
  target_link_libraries(test_api_${unit} PRIVATE fakegpu)
endforeach()
target_link_libraries(stress_gpu PRIVATE fakegpu)
foreach(unit gpu gpu_sizes gpu_load gpu_load_order gpu_load_pins gpu_load_wrong)
  add_executable(test_api_${unit}_hip ${CMAKE_CURRENT_LIST_DIR}/test_${unit}.c)
  target_link_libraries(test_api_${unit}_hip PRIVATE
    support hearth_build criteria ${JANSSON_LIBRARIES} fakehip)
  if(TARGET asan_criterion)
    target_sources(test_api_${unit}_hip PRIVATE $<TARGET_OBJECTS:asan_criterion>)
  endif()
  if(NOT HEARTH_SANITIZE STREQUAL "thread")
    hearth_case(api.${unit}_hip unit COMMAND test_api_${unit}_hip)
  endif()
endforeach()
set(profiles_gpu_load_wrong 12.0 r580) # one that pins no object, and one that limits registrations
set(profiles_gpu_load_large r580 kernel-6.12 gh200)
foreach(unit gpu gpu_sizes gpu_load gpu_load_order gpu_load_pins)
  set(profiles_${unit} 12.8 12.0 r580 kernel-6.12 gh200)
endforeach()
foreach(unit gpu_wrong gpu_pace gpu_example)
  set(profiles_${unit} r580)
endforeach()
if(NOT HEARTH_SANITIZE STREQUAL "thread")
  foreach(unit ${gpu_units})
    foreach(profile ${profiles_${unit}})
      hearth_case(api.${unit}_${profile} unit
        COMMAND ${CMAKE_COMMAND} -E env FAKEGPU_PROFILE=${profile}
          $<TARGET_FILE:test_api_${unit}>)
    endforeach()
  endforeach()
endif()
