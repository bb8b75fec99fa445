# SPDX-License-Identifier: Apache-2.0
# Headers that nearly every file of a room includes, compiled once for the room: parsing them is half of what compiling takes.
# For the larger rooms, as that takes some seconds itself. ccache keeps nothing that was built with such, so machines with
# ccache do without, which shows a file that lacks an #include, too.
set(VERBENA_COMMON_HEADERS <algorithm> <array> <atomic> <cerrno> <chrono> <cstdint> <cstring> <functional> <memory> <optional> <span>
                           <string> <string_view> <utility> <vector> <fmt/format.h> <tl/expected.hpp>)
set(VERBENA_HEADERS_adapter <filesystem> <infiniband/verbs.h> adapter/qp.h)
set(VERBENA_HEADERS_agent <filesystem> <map> <set> agent/session.h)
set(VERBENA_HEADERS_engine <infiniband/verbs.h> engine/shard.h)
set(VERBENA_HEADERS_rdmacm <map> <infiniband/verbs.h> <rdma/rdma_cma.h> rdmacm/identifier.h)
set(VERBENA_HEADERS_net <infiniband/verbs.h>)
set(VERBENA_HEADERS_programs_connections <infiniband/verbs.h> <nlohmann/json.hpp> <rdma/rdma_cma.h>)
set(VERBENA_HEADERS_programs_verbs <infiniband/verbs.h> <nlohmann/json.hpp>)
set(VERBENA_HEADERS_rsockets <map> <infiniband/verbs.h> <rdma/rdma_cma.h>)
set(VERBENA_HEADERS_tools <filesystem> <map> agent_client/status_reader.h)
set(VERBENA_HEADERS_tools_rdma <map> agent_client/status_reader.h)
set(VERBENA_HEADERS_transport <infiniband/verbs.h> transport/queue_pair.h)
set(VERBENA_HEADERS_verbs <infiniband/verbs.h> provider/provider.h)
function(verbena_precompile name)
  if(VERBENA_HEADERS_${name} AND NOT CCACHE)
    list(TRANSFORM VERBENA_HEADERS_${name} REPLACE "^([^<].*)$" "${PROJECT_SOURCE_DIR}/src/\\1")
    target_precompile_headers(verbena_${name} PRIVATE ${VERBENA_COMMON_HEADERS} ${VERBENA_HEADERS_${name}})
  endif()
endfunction()

# verbena_room(NAME SOURCES... [LINK targets...] [PRIVATE_LINK targets...])
#   One folder of src/ as the static library verbena_NAME; headers are included as "NAME/header.h".
function(verbena_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  if(ARG_SOURCES)
    add_library(verbena_${name} STATIC ${ARG_SOURCES})
    target_include_directories(verbena_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(verbena_${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
    if(NOT name IN_LIST VERBENA_DATA_PATH_ROOMS)
      target_compile_options(verbena_${name} PRIVATE ${VERBENA_HARDENED_OPTIONS})
    endif()
    if(name IN_LIST VERBENA_COMMAND_ROOMS)
      target_compile_options(verbena_${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
    endif()
    verbena_precompile(${name})
  else()
    add_library(verbena_${name} INTERFACE)
    target_include_directories(verbena_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(verbena_${name} INTERFACE ${ARG_LINK})
  endif()
endfunction()

# verbena_program(NAME SOURCES... [LINK targets...])
#   A program that is installed.
function(verbena_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_compile_definitions(${name} PRIVATE VERBENA_VERSION="${PROJECT_VERSION}")
  target_compile_options(${name} PRIVATE ${VERBENA_HARDENED_OPTIONS})
  target_link_options(${name} PRIVATE -pie ${VERBENA_HARDENED_LINK_OPTIONS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# verbena_own_program(NAME LINK targets...)
#   A program of that name: main() calls verbena::programs::NAME(argc, argv) of a target that it links. It finds our libraries
#   by its run path, under `verbena run` or not, and lies where no PATH leads unless `verbena run` says so.
function(verbena_own_program name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  verbena_program(${name} SOURCES ${PROJECT_SOURCE_DIR}/src/programs/common/main.cc LINK ${ARG_LINK} verbena_programs_common)
  target_compile_definitions(${name} PRIVATE VERBENA_PROGRAM=${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/programs BUILD_RPATH_USE_ORIGIN ON
                                           INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS ${name} RUNTIME DESTINATION ${VERBENA_LIBDIR}/programs)
  add_dependencies(runtime ${name})
endfunction()

# What nearly every test includes, compiled once: half of what compiling a test takes. ccache keeps nothing that was
# built with it, so machines with ccache do without.
if(VERBENA_TESTS AND NOT CCACHE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/test_headers.cc CONTENT "int main() {}\n")
  add_executable(verbena_test_headers EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/test_headers.cc)
  target_compile_options(verbena_test_headers PRIVATE ${VERBENA_TEST_OPTIONS})
  target_link_libraries(verbena_test_headers PRIVATE GTest::gtest_main GTest::gmock)  # for their definitions
  target_precompile_headers(verbena_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <infiniband/verbs.h> <algorithm>
                            <array> <atomic> <chrono> <cstring> <functional> <map> <memory> <mutex> <optional> <span>
                            <string> <thread> <vector>)
endif()

# verbena_test(NAME SOURCES... [LINK targets...] [LABELS labels...] [TIMEOUT seconds])
#   A GoogleTest program; each TEST becomes a ctest entry.
function(verbena_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main GTest::gmock)
  target_compile_options(${name} PRIVATE ${VERBENA_TEST_OPTIONS})
  if(TARGET verbena_test_headers)
    target_precompile_headers(${name} REUSE_FROM verbena_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# verbena_test_by_wire(NAME FILTER [TIMEOUT seconds])
#   The tests of a program that match a filter of GoogleTest's a second time, as by_wire.TEST, with VERBENA_LOCAL=off: the
#   processes of one host then reach each other by UDP (docs/one-host.md).
function(verbena_test_by_wire name filter)
  cmake_parse_arguments(ARG "" "TIMEOUT" "" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX by_wire. TEST_FILTER "${filter}" TEST_LIST ${name}_by_wire
                       DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT VERBENA_LOCAL=off)
endfunction()
