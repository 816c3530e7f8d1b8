# SPDX-License-Identifier: Apache-2.0
# How we compile, and one function for each kind of target.

add_library(hearth_build INTERFACE)
target_include_directories(hearth_build INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
target_compile_definitions(hearth_build INTERFACE _GNU_SOURCE
  HEARTH_MODULE_DIR="${CMAKE_INSTALL_FULL_LIBDIR}/hearth"
  $<$<BOOL:${HEARTH_POINTS}>:HEARTH_POINTS>)
target_compile_options(hearth_build INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-qual -Wwrite-strings -Wvla -Wundef
  -Wimplicit-fallthrough $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
if(HEARTH_WERROR)
  target_compile_options(hearth_build INTERFACE -Werror)
endif()
if(HEARTH_SANITIZE)
  target_compile_options(hearth_build INTERFACE
    -fsanitize=${HEARTH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(hearth_build INTERFACE -fsanitize=${HEARTH_SANITIZE})
endif()

# What an attacker who finds a hole should meet: checked by tests/lint/hardening.sh. Sanitizers bring
# their own checks, and _FORTIFY_SOURCE does nothing without optimisation but warn.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
if(NOT HEARTH_SANITIZE)
  target_compile_options(hearth_build INTERFACE -fstack-protector-strong -fstack-clash-protection
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>)
  target_link_options(hearth_build INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

set(HEARTH_CORE_LIBRARIES ${ISAL_LIBRARIES} ${SODIUM_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS})

# One folder, one target, `core/base` as hearth_core_base: every .c in it. The folders named after it
# are what it may see.
function(hearth_folder name)
  string(REPLACE / _ target hearth_${name})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.c)
  add_library(${target} STATIC ${sources})
  list(TRANSFORM ARGN REPLACE / _)
  list(TRANSFORM ARGN PREPEND hearth_ OUTPUT_VARIABLE deps)
  target_link_libraries(${target} PUBLIC ${deps} ${HEARTH_CORE_LIBRARIES} PRIVATE hearth_build)
  if(ISAL_FOUND)
    target_compile_definitions(${target} PRIVATE HEARTH_ISAL)
  endif()
endfunction()

# The folders within FOLDER under one name, hearth_FOLDER; HEARTH_FOLDER_OBJECTS: what is in them.
function(hearth_group name)
  list(TRANSFORM ARGN PREPEND hearth_${name}_ OUTPUT_VARIABLE parts)
  add_library(hearth_${name} INTERFACE)
  target_link_libraries(hearth_${name} INTERFACE ${parts})
  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  string(TOUPPER ${name} NAME)
  set(HEARTH_${NAME}_OBJECTS ${parts} PARENT_SCOPE)
endfunction()

# A shared object opened at run time: NAME.so from what is in the group.
function(hearth_module target name group)
  string(TOUPPER ${group} GROUP)
  add_library(${target} MODULE ${HEARTH_${GROUP}_OBJECTS})
  target_link_libraries(${target} PRIVATE hearth_${group} hearth_build)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} LINKER_LANGUAGE C)
endfunction()

# A program that may load libfabric, and has no kernel symbols for it: daemon/kernel_symbols.c.
function(hearth_no_kernel_symbols target)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/daemon/kernel_symbols.c)
  target_link_options(${target} PRIVATE -Wl,--export-dynamic-symbol=fopen)
endfunction()

# A program: every .c of the folder FOLDER_OF it.
function(hearth_program target folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
  add_executable(${target} ${sources})
  list(TRANSFORM ARGN REPLACE / _)
  list(TRANSFORM ARGN PREPEND hearth_ OUTPUT_VARIABLE deps)
  target_link_libraries(${target} PRIVATE ${deps} hearth_build)
endfunction()
