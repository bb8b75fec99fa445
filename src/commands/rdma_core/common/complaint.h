// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace verbena::rdma_core {

// What goes wrong, as a line on standard error: the sentence of the program that ours stands in for, so that
// scripts find it, and behind it why, and what to do about it.

// "SENTENCE", or "SENTENCE (REMEDY)".
void complain(const std::string& sentence, const std::string& remedy = {});

// "SENTENCE: what errno says", or "SENTENCE: what errno says (REMEDY)".
void complain_of(int error, const std::string& sentence, const std::string& remedy = {});

}  // namespace verbena::rdma_core
