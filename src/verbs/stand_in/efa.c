/* SPDX-License-Identifier: Apache-2.0 */
/* The table is made of the header's macros, so the header comes first. */
/* clang-format off */
#include "verbs/stand_in/stand_in.h"

#include "verbs/stand_in/efa.def"
#include "verbs/stand_in/efa_newer.def"
