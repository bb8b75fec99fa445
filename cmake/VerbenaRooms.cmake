# SPDX-License-Identifier: Apache-2.0
# Functions that define libraries, programs and tests. A room is one folder of src/, built as a static library.
#
# Most of the build time goes into parsing the same headers and instantiating their templates again for each file. So without ccache
# (users rarely have it), the files of a room are compiled many at a time, as one unit, with precompiled headers. With ccache neither
# is used: it cannot cache files built with precompiled headers. Such builds also detect missing #includes. Fuzz targets replace single
# files of three rooms, so these rooms are compiled file by file for them.
if(NOT CCACHE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  # unity_groups.py runs for each target. A shim, such as pyenv's, takes longer to start than the script takes.
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)" OUTPUT_VARIABLE VERBENA_PYTHON
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
set(VERBENA_FUZZED_IN_PARTS agent net rsockets)

# verbena_united(VARIABLE NAME SIZE SOURCES files... [ALONE files...]): sets VARIABLE to the files to compile for the target NAME. The
# SOURCES are joined into units of at most SIZE files that declare no name twice (unity_groups.py). ALONE: files that are not joined,
# because their options differ, or because some programs link them without the others.
function(verbena_united variable name size)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE" ${ARGN})
  set(joined ${ARG_SOURCES})
  list(REMOVE_ITEM joined ${ARG_ALONE})
  list(FILTER joined INCLUDE REGEX "\\.cc$")
  list(LENGTH joined count)
  if(CCACHE OR (VERBENA_FUZZ AND name IN_LIST VERBENA_FUZZED_IN_PARTS) OR count LESS 2 OR size LESS 2)
    set(${variable} ${ARG_SOURCES} PARENT_SCOPE)
    return()
  endif()
  set(compiled ${ARG_SOURCES})
  list(REMOVE_ITEM compiled ${joined})
  execute_process(COMMAND ${VERBENA_PYTHON} -I -S ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py ${size} ${joined}
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9]+" groups "${groups}")
  foreach(file group IN ZIP_LISTS joined groups)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    string(APPEND text_${group} "#include \"${file}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_${group}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${group}}")
    list(APPEND compiled ${file})
  endforeach()
  set(${variable} ${compiled} PARENT_SCOPE)
endfunction()

# verbena_headers(FAMILY OPTIONS options... HEADERS headers...): precompiles headers for all targets that use these compiler options.
set(VERBENA_COMMON_HEADERS <algorithm> <array> <atomic> <cerrno> <chrono> <cstdint> <cstring> <filesystem> <functional> <map> <memory>
                           <mutex> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector> <tl/expected.hpp>
                           <infiniband/verbs.h> base/format.h)
function(verbena_headers family)
  cmake_parse_arguments(ARG "" "" "OPTIONS;HEADERS;LINK" ${ARGN})
  if(CCACHE)
    return()
  endif()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${family}_headers.cc CONTENT "")
  add_library(verbena_${family}_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${family}_headers.cc)
  target_include_directories(verbena_${family}_headers PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(verbena_${family}_headers PRIVATE ${ARG_OPTIONS})
  target_link_libraries(verbena_${family}_headers PRIVATE tl::expected Threads::Threads ${ARG_LINK})
  set(headers ${VERBENA_COMMON_HEADERS} ${ARG_HEADERS})
  list(TRANSFORM headers REPLACE "^([^<].*)$" "${PROJECT_SOURCE_DIR}/src/\\1")
  target_precompile_headers(verbena_${family}_headers PRIVATE ${headers})
endfunction()
function(verbena_precompile target family)
  if(NOT CCACHE)
    target_precompile_headers(${target} REUSE_FROM verbena_${family}_headers)
  endif()
endfunction()
verbena_headers(data_path HEADERS adapter/transport/queue_pair.h adapter/engine/shard.h)
verbena_headers(library OPTIONS ${VERBENA_HARDENED_OPTIONS})
verbena_headers(command OPTIONS ${VERBENA_HARDENED_OPTIONS} ${VERBENA_COMMAND_OPTIONS} HEADERS <nlohmann/json.hpp>)

# verbena_room(NAME SOURCES... [ALONE sources...] [LINK targets...] [PRIVATE_LINK targets...])
#   Builds one folder of src/ as the static library verbena_NAME. Headers are included by their path below src/. ALONE: see
#   verbena_united().
function(verbena_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;LINK;PRIVATE_LINK" ${ARGN})
  if(ARG_SOURCES)
    verbena_united(sources ${name} 16 SOURCES ${ARG_SOURCES} ALONE ${ARG_ALONE})
    add_library(verbena_${name} STATIC ${sources})
    target_include_directories(verbena_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(verbena_${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
    if(name IN_LIST VERBENA_DATA_PATH_ROOMS)
      verbena_precompile(verbena_${name} data_path)
    elseif(name IN_LIST VERBENA_COMMAND_ROOMS)
      target_compile_options(verbena_${name} PRIVATE ${VERBENA_HARDENED_OPTIONS} ${VERBENA_COMMAND_OPTIONS})
      verbena_precompile(verbena_${name} command)
    else()
      target_compile_options(verbena_${name} PRIVATE ${VERBENA_HARDENED_OPTIONS})
      verbena_precompile(verbena_${name} library)
    endif()
  else()
    add_library(verbena_${name} INTERFACE)
    target_include_directories(verbena_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(verbena_${name} INTERFACE ${ARG_LINK})
  endif()
endfunction()

# verbena_link_whole(TARGET LIBRARIES...)
#   Links static libraries completely, even if the target uses nothing of them: programs use the functions of a C ABI. Each library
#   is one command-line item, so that CMake does not reorder its parts. ($<LINK_LIBRARY:WHOLE_ARCHIVE> needs CMake 3.24.)
function(verbena_link_whole target)
  foreach(library IN LISTS ARGN)
    target_link_libraries(${target} PRIVATE "-Wl,--whole-archive,$<TARGET_FILE:${library}>,--no-whole-archive" ${library})
  endforeach()
endfunction()

# verbena_program(NAME SOURCES... [LINK targets...])
#   Defines a program that is installed.
function(verbena_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_compile_definitions(${name} PRIVATE VERBENA_VERSION="${PROJECT_VERSION}")
  # Same options as the libraries of commands: the program's own file parses the command line with the same header-only library.
  target_compile_options(${name} PRIVATE ${VERBENA_HARDENED_OPTIONS} ${VERBENA_COMMAND_OPTIONS})
  target_link_options(${name} PRIVATE -pie ${VERBENA_HARDENED_LINK_OPTIONS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# verbena_own_program(NAME LINK targets...)
#   Defines one of Verbena's versions of rdma-core's programs. main() calls verbena::rdma_core::NAME(argc, argv), which a linked target
#   defines. The program finds our libraries by its run path, even without `verbena run`. Its folder is in PATH only under
#   `verbena run`.
function(verbena_own_program name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  verbena_program(${name} SOURCES ${PROJECT_SOURCE_DIR}/src/commands/rdma_core/common/main.cc LINK ${ARG_LINK} verbena_rdma_core_common)
  target_compile_definitions(${name} PRIVATE VERBENA_PROGRAM=${name})
  # The libraries lie in .. of an installation and in ../lib of a build folder. The run path is the same in both: one that
  # CMake changes as it installs ends with an empty element, which means the working directory.
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/programs BUILD_WITH_INSTALL_RPATH ON
                                           INSTALL_RPATH "$ORIGIN/..:$ORIGIN/../lib")
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

set(VERBENA_TESTS_JOINED 6 CACHE STRING "Maximum files of a test program that are compiled as one (without ccache)")

# verbena_test(NAME SOURCES... [LINK targets...] [LABELS labels...] [TIMEOUT seconds] [ONE_BY_ONE])
#   Defines a GoogleTest program; each TEST becomes a ctest entry. ONE_BY_ONE: does not join its files. This is needed where a nested
#   namespace of one file (control::test) would hide a namespace in another (test), which unity_groups.py does not detect. It is
#   also needed for coroutines with types of unnamed namespaces: GCC warns of those outside of the unit's own file.
function(verbena_test name)
  cmake_parse_arguments(ARG "ONE_BY_ONE" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(joined ${VERBENA_TESTS_JOINED})
  if(ARG_ONE_BY_ONE)
    set(joined 1)
  endif()
  verbena_united(sources ${name} ${joined} SOURCES ${ARG_SOURCES})
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main GTest::gmock)
  target_compile_options(${name} PRIVATE ${VERBENA_TEST_OPTIONS})
  if(TARGET verbena_test_headers)
    target_precompile_headers(${name} REUSE_FROM verbena_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  verbena_quick_label(quick ${name})
  if(quick AND ARG_LABELS)
    message(FATAL_ERROR "${name}: it can have one label, not ${quick} and ${ARG_LABELS}")
  endif()
  verbena_discover(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABEL "${ARG_LABELS}${quick}")
endfunction()

# verbena_test_by_wire(NAME FILTER [TIMEOUT seconds])
#   Adds the program's tests that match the GoogleTest filter a second time, as by_wire.TEST, with VERBENA_LOCAL=off: the processes of
#   one host then reach each other by UDP (docs/one-host.md).
function(verbena_test_by_wire name filter)
  cmake_parse_arguments(ARG "" "TIMEOUT" "" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  verbena_quick_label(quick ${name})
  verbena_discover(${name} PREFIX by_wire. FILTER "${filter}" LABEL "${quick}"
                   PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT VERBENA_LOCAL=off)
endfunction()
