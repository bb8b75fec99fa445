# SPDX-License-Identifier: Apache-2.0
# Sets language, warnings and sanitizers for all targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Our shared libraries are loaded into other people's programs, so they export only symbols listed in a version script.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

option(VERBENA_TESTS "Build the tests" ON)
option(VERBENA_BENCH "Build the benchmarks" ON)
option(VERBENA_EXAMPLES "Build the examples of the C++ API" ON)
option(VERBENA_FUZZ "Build the fuzz targets; needs Clang, see the preset 'fuzz'" OFF)
# Off by default, because a newer compiler may have warnings that users cannot fix. The developers' presets turn it on. CI turns
# it on for the release preset by the environment variable of the same name.
set(VERBENA_WERROR_DEFAULT OFF)
if(DEFINED ENV{VERBENA_WERROR})
  set(VERBENA_WERROR_DEFAULT $ENV{VERBENA_WERROR})
endif()
option(VERBENA_WERROR "Warnings are errors" ${VERBENA_WERROR_DEFAULT})
set(VERBENA_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, 'address,undefined' or 'thread'")

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -fno-omit-frame-pointer -ffunction-sections)
if(VERBENA_WERROR)
  add_compile_options(-Werror)
endif()
add_compile_definitions(_GNU_SOURCE)
if(VERBENA_SANITIZE)
  add_compile_options(-fsanitize=${VERBENA_SANITIZE})
  add_link_options(-fsanitize=${VERBENA_SANITIZE})
  # With sanitizers, GCC 12 warns falsely of uninitialized memory in libstdc++'s regex.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(VERBENA_SANITIZE MATCHES undefined)
    # 'vptr' opens a pipe to check an object, and reports a bad object if the process has no descriptors left.
    add_compile_options(-fno-sanitize-recover=all -fno-sanitize=vptr)
  endif()
endif()

# Hardening options, which make memory errors harder to exploit. They are for the agent and the commands, which process input from
# other users. Sanitizers exclude them. Debug builds lack _FORTIFY_SOURCE, since it needs optimization.
set(VERBENA_HARDENED_OPTIONS)
if(NOT VERBENA_SANITIZE)
  set(VERBENA_HARDENED_OPTIONS -fstack-protector-strong -fstack-clash-protection
                               $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND VERBENA_HARDENED_OPTIONS -fcf-protection=full)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND VERBENA_HARDENED_OPTIONS -mbranch-protection=standard)
  endif()
endif()
# Resolves all symbols when the program starts, then makes the relocation tables read-only.
set(VERBENA_HARDENED_LINK_OPTIONS LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
# Libraries of the data path, which are built without hardening: a message through shared memory takes only a few hundred of their
# instructions. They run inside the user's own programs, not in the agent.
set(VERBENA_DATA_PATH_ROOMS memory shm queues congestion transport engine xrc process objects)
# Libraries of the command-line programs: -O1, because the header-only libraries that they use are slow to compile.
set(VERBENA_COMMAND_ROOMS command_line commands commands_rdma rdma_core_common rdma_core_verbs rdma_core_connections)
set(VERBENA_COMMAND_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O1>)

# Tests: -O1, since compiling them takes longer than running them, and line numbers for debugging.
set(VERBENA_TEST_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O1> $<$<NOT:$<CONFIG:Debug>>:-g1>)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
