// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "cm/counters.h"
#include "cm/events.h"
#include "cm/parameters.h"

namespace verbena::cm {

struct ManagerConfig {
  // Passive connections and resolutions that the owner has not answered, or whose answer the peer has not.
  // REQs beyond are dropped, so that their senders try again.
  size_t max_half_open = 4096;
  // Connections in TIMEWAIT; beyond, the oldest leave it early.
  size_t max_time_wait = 65536;
  // The longest that a peer's word makes us wait: for each of its answers, and after an MRA.
  uint8_t longest_response_timeout = 22;
  uint8_t longest_service_timeout = 24;
  // The high half of transaction IDs that begin here.
  uint32_t transaction_prefix = 2;
  // Communication IDs are a count, made unguessable by this; drawn when not given.
  std::optional<uint32_t> id_mask;
  // Whether LAPs go to the handler. If not they are answered with kUnsupported: over RoCE there is no
  // alternate path (annex A16).
  bool alternate_paths = false;
};

// The connection manager of one GSI: all connections of all devices whose QP1 it is. Pure: it reads no clock
// and sends through its sink. Not thread-safe; whoever drives it calls on_mad() for each datagram to QP1 and
// on_timer() when deadline() has come. What happens is told to the handler; see there when it may call back.
//
// Every operation answers ENOENT for an ID that is not there, EINVAL for a state in which it makes no sense
// or private data that has no room.
class Manager {
 public:
  // REQUIRES: sink and handler outlive the manager
  Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // A datagram that came to QP1, from the MAD's first byte to its last.
  void on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now);
  // When on_timer() is next wanted; kNever: not before something else happens.
  TimePoint deadline() const;
  void on_timer(TimePoint now);

  // Active: sends the REQ. on_reply(), on_rejected() or on_unreachable() follows.
  Result<LocalId> connect(const ConnectParameters& parameters, uint64_t context, TimePoint now);
  // Passive, after on_request(): the REP. on_ready(), on_rejected() or on_unreachable() follows.
  Result<void> reply(LocalId id, const ReplyParameters& parameters, TimePoint now);
  // Active, after on_reply(): the RTU; the connection is established.
  Result<void> ready(LocalId id, ConstBytes private_data, TimePoint now);
  // Passive: the connection is established as its QP has received something, so the RTU must be late or lost
  // (IBV_EVENT_COMM_EST). EISCONN if it is already. No event follows.
  Result<void> establish(LocalId id, TimePoint now);
  // Before it is established: the REJ. No event follows.
  Result<void> reject(LocalId id, const RejectParameters& parameters, TimePoint now);
  // After on_request(), on_reply() or on_alternate_path(): the owner needs as long as 4.096 us *
  // 2^service_timeout to answer. The MRA leaves now, or (kOnDuplicate, as the kernel's rdma_cm does) only
  // when the peer asks again.
  enum class MraTime : uint8_t { kNow, kOnDuplicate };
  Result<void> delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                     TimePoint now);
  // The DREQ. on_disconnected() follows; or on_disconnect_request(), when both sides disconnect at once.
  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  // After on_disconnect_request(): the DREP. on_time_wait_exit() follows.
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);

  // The owner wants to hear no more of this ID. What the peer is owed it still gets, as from
  // ib_destroy_cm_id(): a REJ, a DREQ, repeated until it is answered, a DREP, a SIDR_REP. A connection that
  // is not idle is forgotten when that is done and TIMEWAIT is over.
  Result<void> destroy(LocalId id, TimePoint now);
  // Forgets the connection at once and in silence: its device is gone.
  Result<void> forget(LocalId id);

  // Takes up a connection that was established with a former manager, under the same ID. EEXIST if that is
  // taken.
  Result<void> restore(const RestoreParameters& parameters, uint64_t context, TimePoint now);

  // Service ID resolution: on_sidr_reply() or on_unreachable() follows.
  Result<LocalId> sidr_request(const SidrRequestParameters& parameters, uint64_t context, TimePoint now);
  // After on_sidr_request(). The owner need not keep the ID for the sake of a repeated SIDR_REQ.
  Result<void> sidr_reply(LocalId id, const SidrReplyParameters& parameters, TimePoint now);

  // The LAP: on_alternate_path_answer(), on_rejected() or on_unreachable(kLap) follows. Active side only.
  Result<void> load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                   TimePoint now);
  // After on_alternate_path(): the APR.
  Result<void> answer_alternate_path(LocalId id, AprStatus status, ConstBytes info, ConstBytes private_data,
                                     TimePoint now);

  Result<ConnectionInfo> info(LocalId id) const;

  const Counters& counters() const;
  // Those of owners, and those that were destroyed and still have something to do.
  size_t size() const;
  size_t half_open() const;
  size_t in_time_wait() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena::cm
