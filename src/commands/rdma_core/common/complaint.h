// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace verbena::rdma_core {

// These functions print an error as one line on standard error. The line begins with the text of rdma-core's
// program, so that scripts recognize it. The reason and the remedy follow.

// Prints "SENTENCE" or "SENTENCE (REMEDY)".
void complain(const std::string& sentence, const std::string& remedy = {});

// Prints "SENTENCE: STRERROR" or "SENTENCE: STRERROR (REMEDY)" for the errno `error`.
void complain_of(int error, const std::string& sentence, const std::string& remedy = {});

}  // namespace verbena::rdma_core
