# SPDX-License-Identifier: Apache-2.0
# Installs man pages and shell completions.
file(GLOB pages ${PROJECT_SOURCE_DIR}/docs/man/*.[178])
foreach(page IN LISTS pages)
  string(REGEX MATCH "[0-9]$" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/packaging/completion/verbena.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME verbena)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/completion/_verbena DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
