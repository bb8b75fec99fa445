// SPDX-License-Identifier: Apache-2.0
// How the agent divides its descriptors among what users may have.
#include <cstddef>

#include <gtest/gtest.h>

#include "agent/cm/client_parts.h"
#include "agent/cm/connection_trace.h"
#include "agent/mad/dispatcher.h"
#include "agent/sessions/client_files.h"
#include "agent/sessions/client_table.h"
#include "agent/slots/domain_table.h"
#include "agent/status/kept_traces.h"

namespace verbena::agent {
namespace {

TEST(Descriptors, OfAllTablesTogetherLeaveSomeForSlots) {
  for (const size_t limit : {256, 1024, 4096, 65536, 1 << 20}) {
    const size_t kept = ClientLimits::channels_with(limit).all + DomainTable::room_with(limit).all;
    // Sessions count until their sockets are closed, so also those that leave an event socket unread.
    const size_t taken = ClientTable::room_with(limit).all * ClientTable::kDescriptorsOfClient +
                         ForeignCloser::room_with(limit).all + ForeignCloser::refused_with(limit).all +
                         HeldFiles::room_with(limit).all + ConnectionTraces::readers_with(limit).all +
                         MadDispatcher::room_with(limit).all + KeptTraces::room_with(limit);
    EXPECT_GE(ForeignCloser::room_with(limit).all, kept + limit / 32) << "they may wait to be closed, too";
    EXPECT_LE(taken, limit - limit / 32) << "of " << limit;
    EXPECT_GT(DomainTable::room_with(limit).all, 0u);
  }
}

}  // namespace
}  // namespace verbena::agent
