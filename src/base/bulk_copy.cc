// SPDX-License-Identifier: Apache-2.0
#include "base/bulk_copy.h"

#include <algorithm>

namespace verbena {

__attribute__((no_sanitize("nonnull-attribute"))) void copy_in_pieces(std::byte* to, const std::byte* from,
                                                                      size_t bytes) {
  while (bytes > 0) {
    size_t piece = std::min(bytes, kBulkPieceBytes);
    // Hides the size from the compiler. If it knew that the size is small, it would emit `rep movsq`, which
    // is as slow.
    asm("" : "+r"(piece));
    std::memcpy(to, from, piece);
    to += piece;
    from += piece;
    bytes -= piece;
  }
}

}  // namespace verbena
