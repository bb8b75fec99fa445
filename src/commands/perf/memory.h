// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <verbena/verbs.hpp>

#include "commands/perf/parameters.h"

namespace verbena::perf {

// Makes the memory of a test and registers it: pages of this process, huge pages, or a part of a file, as the
// parameters say. The region owns the memory. Throws std::exception.
verbena::region register_buffer(const verbena::pd& domain, std::uint64_t size, verbena::access rights,
                                const Parameters& parameters);

}  // namespace verbena::perf
