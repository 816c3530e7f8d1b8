# SPDX-License-Identifier: Apache-2.0
# The `.metadata` reader against Python's own pickle.
add_executable(metadata_dump ${CMAKE_CURRENT_LIST_DIR}/metadata_dump.c)
target_link_libraries(metadata_dump PRIVATE support hearth_build ${JANSSON_LIBRARIES})
hearth_case(core.metadata_differential unit TIMEOUT 300
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/metadata_differential $<TARGET_FILE:metadata_dump>)
