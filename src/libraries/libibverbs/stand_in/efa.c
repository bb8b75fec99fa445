/* SPDX-License-Identifier: Apache-2.0 */
/* The table is made of the header's macros, so the header comes first. */
/* clang-format off */
#include "libraries/libibverbs/stand_in/stand_in.h"

#include "libraries/libibverbs/stand_in/efa.def"
#include "libraries/libibverbs/stand_in/efa_newer.def"
