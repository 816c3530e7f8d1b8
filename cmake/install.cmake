# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where. hearthd and the modules find each other relative to the
# library, so the whole tree may be moved.
if(SKBUILD) # a wheel has no links: one file, by the name that programs are bound to
  set_target_properties(hearth PROPERTIES VERSION ${HEARTH_ABI})
  install(TARGETS hearth LIBRARY NAMELINK_SKIP)
else()
  install(TARGETS hearth EXPORT hearthTargets)
endif()
install(TARGETS hearth_cli hearthd)
foreach(folder . transport/tcp transport/ofi transport/ucx)
  get_property(targets DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL MODULE_LIBRARY)
      install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/hearth)
    endif()
  endforeach()
endforeach()
if(SKBUILD)
  return() # of what follows a wheel has nothing
endif()

set(config ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)
configure_package_config_file(cmake/hearthConfig.cmake.in hearthConfig.cmake
  INSTALL_DESTINATION ${config})
write_basic_package_version_file(hearthConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# pkg-config: the prefix is where the file lies, the libraries of an archive are private.
set(HEARTH_PC_PRIVATE "-lpthread -ldl")
foreach(library ${ISAL_LIBRARIES} ${SODIUM_LIBRARIES})
  string(PREPEND HEARTH_PC_PRIVATE "-l${library} ")
endforeach()
string(REGEX REPLACE "[^/]+" ".." HEARTH_PC_UP ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(cmake/hearth.pc.in hearth.pc @ONLY)

install(DIRECTORY include/hearth DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT hearthTargets NAMESPACE hearth:: DESTINATION ${config})
install(FILES ${PROJECT_BINARY_DIR}/hearthConfig.cmake
  ${PROJECT_BINARY_DIR}/hearthConfigVersion.cmake DESTINATION ${config})
install(FILES ${PROJECT_BINARY_DIR}/hearth.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  FILES_MATCHING PATTERN "*.1")
install(DIRECTORY docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3
  FILES_MATCHING PATTERN "*.3")
install(DIRECTORY docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man8
  FILES_MATCHING PATTERN "*.8")

if(HEARTH_SYSTEMD)
  set(HEARTHD ${CMAKE_INSTALL_FULL_BINDIR}/hearthd)
  configure_file(deploy/systemd/hearthd@.service hearthd@.service @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/hearthd@.service deploy/systemd/run-hearth.mount
    DESTINATION lib/systemd/system)
endif()

# Completion by shells, printed by the command itself.
if(NOT CMAKE_CROSSCOMPILING)
  foreach(shell bash zsh)
    add_custom_command(OUTPUT completion/${shell} DEPENDS hearth_cli VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory completion
      COMMAND $<TARGET_FILE:hearth_cli> completion ${shell} > completion/${shell})
  endforeach()
  add_custom_target(hearth_completion ALL DEPENDS completion/bash completion/zsh)
  install(FILES ${PROJECT_BINARY_DIR}/completion/bash RENAME hearth
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${PROJECT_BINARY_DIR}/completion/zsh RENAME _hearth
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

# A page of section 3 is found by the name of each call that it describes.
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.3)
foreach(page ${pages})
  get_filename_component(own ${page} NAME_WE)
  file(READ ${page} text)
  string(REGEX MATCH "\n\\.SH NAME\n[^-]*" names "${text}")
  string(REGEX MATCHALL "hearth_[a-z_0-9]+" names "${names}")
  list(REMOVE_ITEM names ${own})
  foreach(name ${names})
    file(CONFIGURE OUTPUT man3/${name}.3 CONTENT ".so man3/${own}.3\n")
    install(FILES ${PROJECT_BINARY_DIR}/man3/${name}.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
  endforeach()
endforeach()
