# SPDX-License-Identifier: Apache-2.0
# A checkpoint of one world read by another: real ranks and engines, one test per `CASE(name)`.
add_executable(reshard reshard/reshard.c reshard/deeds.c reshard/model.c)
target_link_libraries(reshard PRIVATE party hearth_build)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/reshard/reshard.c)
file(STRINGS reshard/reshard.c cases REGEX "^    CASE\\([a-z0-9_]+\\)")
foreach(case ${cases})
  string(REGEX REPLACE ".*CASE\\(([a-z0-9_]+)\\).*" "\\1" case "${case}")
  hearth_case(reshard.${case} reshard TIMEOUT 90 COMMAND reshard ${case})
endforeach()
