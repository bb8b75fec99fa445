// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "adapter/transport/counters.h"
#include "control/model/device_counters.h"
#include "control/model/link.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/status_page.h"

namespace verbena::control {

// A link with its state and counters.
struct LinkStatus {
  Link link;
  std::string wire;  // "up", or "down: why"
  DeviceCounters counters{};
};

// Numbers that a process published about one of its QPs in a status page. They are not checked.
struct QpNumbers {
  uint32_t qpn = 0;
  uint32_t type = 0;   // enum ibv_qp_type
  uint32_t state = 0;  // enum ibv_qp_state
  uint32_t remote_qpn = 0;
  protocol::QpWay way = protocol::QpWay::kWire;
  bool by_memory() const { return way != protocol::QpWay::kWire; }
  uint32_t device_index = 0;
  std::array<uint64_t, transport::kQpCounterCount> counters{};  // by transport::QpCounter
  std::array<uint64_t, transport::kPathNumberCount> path{};  // by transport::PathNumber; zeros without a path
  std::array<uint64_t, protocol::kQpDetailCount> details{};  // by protocol::QpDetail
};

// Numbers that a process published about an object other than a QP. They are not checked.
struct ObjectNumbers {
  protocol::ObjectKind kind = protocol::ObjectKind::kNone;
  uint32_t number = 0;  // unique on the host
  uint32_t device_index = 0;
  std::array<uint64_t, protocol::kObjectValues> values{};  // by protocol::PdValue and so on
};

// The number of a process's objects, by kind. Counts all objects, even those for which the process's list
// (SlotStatus::objects) has no room.
using ObjectTotals = std::array<uint64_t, static_cast<size_t>(protocol::ObjectKind::kCount)>;

// A leased slot: the process that has it, and the numbers on the slot's status page.
struct SlotStatus {
  uint32_t index = 0;
  pid_t pid = 0;  // 0 if in a pid namespace that the agent does not see
  uid_t uid = 0;
  std::string program;
  uint16_t protocol_version = 0;  // of the messages between the process's library and the agent; 0 if unknown
  bool has_wire = false;          // the process can exchange packets with other hosts
  bool is_forwarded = false;      // the agent forwards packets to the process, which has no socket of its own
  std::array<uint64_t, protocol::kPortNumbers> port{};  // by PortCounter
  std::vector<QpNumbers> qps;                           // in use; with QpChoice::kAll also destroyed ones
  bool lists_objects = false;  // this slot's page has the process's list of objects; one of its slots has it
  std::vector<ObjectNumbers> objects{};  // empty unless lists_objects
  ObjectTotals object_totals{};          // zeros unless lists_objects
};

// The answer to `verbena status`: the agent, its links, the leased slots and the connection manager.
struct AgentStatus {
  pid_t pid = 0;
  uid_t uid = 0;
  std::string version;
  uint16_t protocol_version = 1;  // the agent's own
  // Programs that the agent refused because of their protocol version: their number, and the latest one.
  struct Refused {
    uint32_t count = 0;
    pid_t last_pid = 0;
    uint16_t last_version = 0;
  } refused{};
  std::string no_wire_reason;  // empty if the agent has UDP port 4791
  std::vector<LinkStatus> links;
  std::vector<SlotStatus> slots;  // leased ones, by index
  protocol::CmStatus connection_management{};
  std::vector<protocol::CmIdRecord> cm_ids{};  // empty until Admin::add_cm_ids()
  std::string cm_ids_note{};                   // why identifiers are missing in the list; empty if none are
};

// Selects the QPs of a page to read: only QPs in use, or also destroyed QPs whose entry was not reused yet.
enum class QpChoice : uint8_t { kInUse, kAll };

// Reads the numbers of the port and of the QPs from a status page that another process writes, and adds them
// to `slot`. Changes nothing if the page cannot be read or is not initialized. Reads the file instead of
// mapping it, so that nothing that the other process does with the file can kill the reader. Makes no call
// that waits for the file's lock, such as lseek(2). But each read waits for the locks of its pages, which a
// process that writes to the file can hold for seconds. So the agent reads on separate threads
// (agent/sessions/client_files.h).
void read_status_page(int fd, SlotStatus& slot, QpChoice choice = QpChoice::kInUse);

// Reads the page's list of objects into `slot`. Also reads the details (QpNumbers::details) of the QPs that
// are in slot.qps already. Reads the file as read_status_page() does.
void read_objects(int fd, SlotStatus& slot);

// The result of read_some_qps().
struct QpsRead {
  std::vector<QpNumbers> qps;
  std::vector<uint32_t> places;  // by element of `qps`: the QP's index in the page
  uint32_t next = 0;             // `first` of the next call; kQpsPerSlot if all were read
  size_t work = 0;               // cost of this call, in units of about one QP's entry
};
// Reads QPs from index `first` on, also destroyed ones. Stops when QpsRead::work has reached 2,304. Called
// repeatedly to read many pages in small steps. Leaves out QPs whose entry is not in memory now (swapped out,
// or never written).
QpsRead read_some_qps(int fd, uint32_t first);

// The functions below derive the objects of a device from the agent's status, for programs that show them as
// iproute2 or the kernel's messages do. They do no I/O.

// Returns whether the slot's process lists its objects. Libraries of older versions do not. A process has one
// list for all its slots, so the list may be in the page of another slot. For a process whose pid the agent
// does not see, only the slot's own page is looked at.
bool lists_objects(const AgentStatus& status, const SlotStatus& slot);

// Returns whether the identifier is shown with this device. An identifier that is not bound to a device is
// shown with every device, because any may receive its connections.
bool is_of(const protocol::CmIdRecord& id, const Link& link);

// Returns the numbers of the QPs that use the shared receive queue `srq` (ObjectNumbers::number).
std::vector<uint32_t> qps_of_shared_receives(const AgentStatus& status, uint32_t srq);

// The number of objects of each kind that a device has. A process may have more objects than its list can
// hold. If at least half of the list is used, the others count for the device of the first listed object.
// Otherwise the list is only behind, and they do not count.
struct ResourceSummary {
  uint64_t pd = 0, cq = 0, qp = 0, cm_id = 0, mr = 0, ctx = 0, srq = 0;
};
// Counts the objects of the link's device. `cm_id` includes identifiers that are bound to no device, and is 0
// before Admin::add_cm_ids().
ResourceSummary summary_of(const AgentStatus& status, const Link& link);

// Returns whether the port is ACTIVE, so that packets can be sent.
inline bool is_active(const LinkStatus& device) {
  return device.wire == "up";
}

}  // namespace verbena::control
