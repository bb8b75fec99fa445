// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/link.h"

namespace verbena::control {

// The link table, as the agent passes it on: in a sealed memfd, so that one file serves every client and a
// reader needs no lock. It also carries the data that the next agent needs to continue after this one.
struct LinkSnapshot {
  uint64_t generation = 0;
  uint32_t next_device_index = 0;
  std::vector<uint32_t> deleted;  // interface indexes whose automatic link the user deleted
  std::vector<Link> links;        // in device order

  friend bool operator==(const LinkSnapshot&, const LinkSnapshot&) = default;
};

std::vector<std::byte> encode_links(const LinkSnapshot& snapshot);
// EPROTO if the bytes are no valid link table. Accepts the record lengths of other versions
// (link_table_layout.h).
Result<LinkSnapshot> decode_links(ConstBytes bytes);

Result<UniqueFd> write_link_file(const LinkSnapshot& snapshot);
// EPROTO also for a file that is not sealed against change.
Result<LinkSnapshot> read_link_file(int fd);

}  // namespace verbena::control
