// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::rdma_core {

// What --help says of a program behind its usage text: its options with their units, and examples.
void print_help(const char* program);

}  // namespace verbena::rdma_core
