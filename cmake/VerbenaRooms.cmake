# SPDX-License-Identifier: Apache-2.0
# Without ccache, which users and CI do not have, most of a build would go into reading the same headers again for each file,
# and into compiling what their templates become. So there the files of most rooms are compiled many at a time, as one: no two
# of such a room may have a name in common, not even in unnamed namespaces. The rooms of the data path stay as they are, with
# precompiled headers. ccache keeps nothing that was built with such, and does without both: that shows a file that lacks an
# #include. Fuzz targets put what is theirs in the place of files of two rooms, which the linker must be able to leave out one by one.
set(VERBENA_UNITY_ROOMS agent agent_client capture cm command_line fabric programs_common programs_connections programs_verbs rdmacm rsockets
                        rsockets_protocol tools trace verbs)
set(VERBENA_FUZZED_IN_PARTS verbena_agent verbena_rsockets)
function(verbena_unite target)
  if(NOT CCACHE AND NOT (VERBENA_FUZZ AND target IN_LIST VERBENA_FUZZED_IN_PARTS))
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()

set(VERBENA_COMMON_HEADERS <algorithm> <array> <atomic> <cerrno> <chrono> <cstdint> <cstring> <functional> <memory> <optional> <span>
                           <string> <string_view> <utility> <vector> <tl/expected.hpp> ${PROJECT_SOURCE_DIR}/src/base/format.h)
set(VERBENA_HEADERS_adapter <filesystem> <infiniband/verbs.h> adapter/qp.h)
set(VERBENA_HEADERS_engine <infiniband/verbs.h> engine/shard.h)
set(VERBENA_HEADERS_net <infiniband/verbs.h>)
set(VERBENA_HEADERS_tools_rdma <map> agent_client/status_reader.h)
set(VERBENA_HEADERS_transport <infiniband/verbs.h> transport/queue_pair.h)
function(verbena_precompile name)
  if(VERBENA_HEADERS_${name} AND NOT CCACHE)
    list(TRANSFORM VERBENA_HEADERS_${name} REPLACE "^([^<].*)$" "${PROJECT_SOURCE_DIR}/src/\\1")
    target_precompile_headers(verbena_${name} PRIVATE ${VERBENA_COMMON_HEADERS} ${VERBENA_HEADERS_${name}})
  endif()
endfunction()

# verbena_room(NAME SOURCES... [ALONE sources...] [LINK targets...] [PRIVATE_LINK targets...])
#   One folder of src/ as the static library verbena_NAME; headers are included as "NAME/header.h". ALONE: those of the sources
#   that are never compiled together with others, as some programs link them and would have all the others then.
function(verbena_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;LINK;PRIVATE_LINK" ${ARGN})
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
    if(name IN_LIST VERBENA_UNITY_ROOMS)
      verbena_unite(verbena_${name})
      set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    verbena_precompile(${name})
  else()
    add_library(verbena_${name} INTERFACE)
    target_include_directories(verbena_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(verbena_${name} INTERFACE ${ARG_LINK})
  endif()
endfunction()

# verbena_link_whole(TARGET LIBRARIES...)
#   Links all of the static libraries, used or not: a C ABI is for programs to use. One item of the command line each,
#   which CMake moves as a whole; its own way of saying this needs CMake 3.24.
function(verbena_link_whole target)
  foreach(library IN LISTS ARGN)
    target_link_libraries(${target} PRIVATE "-Wl,--whole-archive,$<TARGET_FILE:${library}>,--no-whole-archive" ${library})
  endforeach()
endfunction()

# verbena_program(NAME SOURCES... [LINK targets...])
#   A program that is installed.
function(verbena_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_compile_definitions(${name} PRIVATE VERBENA_VERSION="${PROJECT_VERSION}")
  # Its own file reads the command line: as with the rooms of commands.
  target_compile_options(${name} PRIVATE ${VERBENA_HARDENED_OPTIONS} $<$<CONFIG:RelWithDebInfo>:-O1>)
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
