# SPDX-License-Identifier: Apache-2.0
# The program of tests/gpu/run, and the script's own test over the driver of the tests.
add_executable(gpu_rows ${CMAKE_CURRENT_LIST_DIR}/rows.c ${CMAKE_CURRENT_LIST_DIR}/trainer.c
  ${CMAKE_CURRENT_LIST_DIR}/device.c ${CMAKE_CURRENT_LIST_DIR}/../bench/common.c)
target_include_directories(gpu_rows PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(gpu_rows PRIVATE hearth::hearth hearth_build ${CMAKE_DL_LIBS})
foreach(module hearth_engine_module hearth_tcp_module fakegpu) # opened at run time
  if(TARGET ${module})
    add_dependencies(gpu_rows ${module})
  endif()
endforeach()
if(NOT HEARTH_SANITIZE)
  hearth_case(gpu.run unit COMMAND ${CMAKE_CURRENT_LIST_DIR}/run_test.sh ${PROJECT_BINARY_DIR})
endif()
