/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: the table is made of the header's macros */
#include "verbs/stand_in/stand_in.h"

#include "verbs/stand_in/efa.def"
#include "verbs/stand_in/efa_newer.def"
