/* SPDX-License-Identifier: Apache-2.0 */
/* The header must come first: the table uses its macros. */
/* clang-format off */
#include "libraries/libibverbs/stand_in/stand_in.h"

#include "libraries/libibverbs/stand_in/efa.def"
#include "libraries/libibverbs/stand_in/efa_newer.def"
