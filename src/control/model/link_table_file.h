// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/link.h"

namespace verbena::control {

// The link table that the agent sends to clients in a sealed memfd: one file serves all clients, and readers
// need no lock. The other members are for the next agent, which continues from the file.
struct LinkSnapshot {
  uint64_t generation = 0;
  uint32_t next_device_index = 0;
  std::vector<uint32_t> deleted;  // interface indexes whose automatic link the user deleted
  std::vector<Link> links;        // in device order

  friend bool operator==(const LinkSnapshot&, const LinkSnapshot&) = default;
};

std::vector<std::byte> encode_links(const LinkSnapshot& snapshot);
// Decodes a link table, also with record lengths of other versions. EPROTO if it is invalid.
Result<LinkSnapshot> decode_links(ConstBytes bytes);

// Writes the table to a new sealed memfd, and returns it.
Result<UniqueFd> write_link_file(const LinkSnapshot& snapshot);
// Reads the table from a file of write_link_file(). EPROTO if it is invalid or not sealed against changes.
Result<LinkSnapshot> read_link_file(int fd);

}  // namespace verbena::control
