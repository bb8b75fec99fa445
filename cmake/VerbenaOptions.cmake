# SPDX-License-Identifier: Apache-2.0
# Language, warnings and sanitizers, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# What we link into libibverbs.so.1 shares a process with strangers: nothing is exported unless a version script says so.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

option(VERBENA_TESTS "Build the tests" ON)
option(VERBENA_BENCH "Build the benchmarks" ON)
option(VERBENA_FUZZ "Build the fuzz targets; needs Clang, see the preset 'fuzz'" OFF)
# A newer compiler warns about more, and users cannot mend that. The developers' presets turn it on, and so does the
# environment variable of that name: CI builds the release preset with it.
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
  # GCC 12 sees uninitialized memory in libstdc++'s regex where the sanitizers' code stands between; they find the real ones.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(VERBENA_SANITIZE MATCHES undefined)
    # 'vptr' opens a pipe to look at an object, and takes a process that has run out of descriptors for one with a bad object.
    add_compile_options(-fno-sanitize-recover=all -fno-sanitize=vptr)
  endif()
endif()

# What makes a fault of ours harder to use for others: in what the agent and the commands are made of, which hear
# strangers. The sanitizers do the same and more, and do not go with it; debuggers want no optimization, without
# which there is no _FORTIFY_SOURCE.
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
# Everything is bound before the program begins, and what was written for that is read-only then.
set(VERBENA_HARDENED_LINK_OPTIONS LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
# Rooms without it: a message by memory is a few hundred instructions of theirs, and they are in programs only.
set(VERBENA_DATA_PATH_ROOMS memory shm queues congestion transport engine xrc process objects)
# Rooms of commands, which people wait for: little optimization, as compiling what their libraries have in headers takes long.
set(VERBENA_COMMAND_ROOMS command_line commands commands_rdma rdma_core_common rdma_core_verbs rdma_core_connections)
set(VERBENA_COMMAND_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O1>)

# Tests are compiled more often than they run: little optimization, and line numbers for debugging.
set(VERBENA_TEST_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O1> $<$<NOT:$<CONFIG:Debug>>:-g1>)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
