# SPDX-License-Identifier: Apache-2.0
# Debian packages, made by CPack: `verbena` has the programs and libraries, `libverbena-dev` the files to build programs against them.
# scripts/package configures the build (prefix /usr), determines the dependencies, and makes the packages.
set(VERBENA_PACKAGE_VERSION "${PROJECT_VERSION}" CACHE STRING "Version of the Debian packages")

install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libverbena-dev
        COMPONENT development)

# The C++ API: headers only, over any libibverbs and librdmacm. Programs find it by find_package(verbena) and the target
# verbena::verbena, or by pkg-config.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/verbena DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
include(CMakePackageConfigHelpers)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/verbenaConfig.cmake.in ${PROJECT_BINARY_DIR}/verbenaConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/verbena PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/verbenaConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/verbenaConfig.cmake ${PROJECT_BINARY_DIR}/verbenaConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/verbena COMPONENT development)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME verbena)
set(CPACK_PACKAGE_VENDOR Verbena)
set(CPACK_PACKAGE_CONTACT "Verbena <maintainers@verbena.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "RDMA without RDMA hardware")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_VERSION ${VERBENA_PACKAGE_VERSION})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME verbena)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION net)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "ibverbs-utils, rdmacm-utils, perftest")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "Programs written for libibverbs and librdmacm run unmodified, on one host or\nbetween hosts: by shared memory, or RoCEv2 on UDP port 4791. No adapter, no\nkernel module, no privilege. Start with 'verbena run PROGRAM'.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
    "${PROJECT_SOURCE_DIR}/packaging/debian/postinst;${PROJECT_SOURCE_DIR}/packaging/debian/prerm;${PROJECT_SOURCE_DIR}/packaging/debian/postrm")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libverbena-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "verbena (= ${VERBENA_PACKAGE_VERSION}), libibverbs-dev, librdmacm-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "A C++ API for RDMA, header-only, and pkg-config files for Verbena's libraries.\nThe C headers are rdma-core's: programs built with them run on either library\nwithout changes.")
include(CPack)
