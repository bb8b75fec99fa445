/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/stand_in/stand_in.h"

#include "verbs/stand_in/efa.def"
