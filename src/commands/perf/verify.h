// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <verbena/verbs.hpp>

#include "commands/perf/endpoint.h"
#include "commands/perf/parameters.h"

// Implements --verify. Each byte of a buffer has a value that depends on its place and on the queue pair, so
// that lost, doubled and misplaced data is found. Both ends must have the option.
namespace verbena::perf {

// Fills a buffer of the queue pair with this index.
void fill_with_pattern(const verbena::slice& buffer, std::size_t index);
// Checks data that came from this offset of the peer's buffer. Throws std::runtime_error that names the first
// wrong byte. `what` completes "WHAT of queue pair 3: byte ...".
void check_pattern(const verbena::slice& data, std::size_t index, std::size_t offset, const char* what);

// Check the memory after all messages of a size, if the test has --verify. check_fetched() checks the data
// that READs have fetched, and clears it. check_target() checks the data that WRITEs of the peer have left in
// this memory, or the sums of its fetch-and-add requests. Throw std::runtime_error.
void check_fetched(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);
void check_target(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);

}  // namespace verbena::perf
