/* SPDX-License-Identifier: Apache-2.0 */
/* The header must come first: the table uses its macros. */
/* clang-format off */
#include "base/symbol_version.h"
#include "libraries/libibverbs/stand_in/stand_in.h"

#include "libraries/libibverbs/stand_in/mlx5.def"
#include "libraries/libibverbs/stand_in/mlx5_newer.def"
/* clang-format on */

/* The only function that has an older version. */
VERBENA_SYMBOL_VERSION(mlx5dv_init_obj_1_0, "mlx5dv_init_obj@MLX5_1.0") int mlx5dv_init_obj_1_0(void);
int mlx5dv_init_obj_1_0(void) {
  return stand_in_refuse();
}
