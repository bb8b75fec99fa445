// SPDX-License-Identifier: Apache-2.0
#include "base/bulk_copy.h"

#include <algorithm>

namespace verbena {

__attribute__((no_sanitize("nonnull-attribute"))) void copy_in_pieces(std::byte* to, const std::byte* from,
                                                                      size_t bytes) {
  while (bytes > 0) {
    size_t piece = std::min(bytes, kBulkPieceBytes);
    // Of what it knows to be short the compiler makes a `rep movsq` in place of a call, which is as slow.
    asm("" : "+r"(piece));
    std::memcpy(to, from, piece);
    to += piece;
    from += piece;
    bytes -= piece;
  }
}

}  // namespace verbena
