// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::rdma_core {

// Prints the part of `program`'s --help that follows the usage text: options with their units, and examples.
void print_help(const char* program);

}  // namespace verbena::rdma_core
