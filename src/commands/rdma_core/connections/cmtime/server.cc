// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "commands/rdma_core/connections/cmtime/steps.h"
#include "commands/rdma_core/connections/events.h"

namespace verbena::rdma_core {
namespace {

// Accepts connections until it is killed.
class Server {
 public:
  Server(const TimingLine& line, rdma_event_channel* channel)
      : line_(line), channel_(channel), output_(line.json) {}

  int run() {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return failed("listen request failed");
    const Id listener(id);
    AddressInfo addresses;
    if (const int error = find_timed_addresses(line_, true, "getrdmaaddr", output_, addresses); error != 0)
      return error;
    if (rdma_bind_addr(id, addresses->ai_src_addr) != 0) return failed("bind address failed");
    if (rdma_listen(id, 0) != 0) return failed("failure trying to listen");
    while (serve_next()) {
    }
    return failed("failure in rdma_get_cm_event in process_server_events");
  }

 private:
  bool serve_next() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return false;
    rdma_cm_id* id = event->id;
    const rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);  // an id cannot be destroyed before its events are acknowledged
    switch (type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        accept(id);
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        rdma_disconnect(id);
        end(id);
        break;
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
        end(id);
        break;
      default:
        break;
    }
    return true;
  }

  void accept(rdma_cm_id* id) {
    ibv_qp_init_attr wanted = timed_queue_pair();
    Connection connection;
    connection.id.reset(id);
    if (rdma_create_qp(id, nullptr, &wanted) != 0) {
      failed("failure creating qp");
    } else {
      connection.pair.reset(id);
      if (rdma_accept(id, nullptr) == 0) {
        connections_.emplace(id, std::move(connection));
        return;
      }
      failed("failure accepting");
    }
    tell_failure(output_, "failing connection request");
    rdma_reject(id, nullptr, 0);
  }

  void end(rdma_cm_id* id) { connections_.erase(id); }

  struct Connection {
    Id id;
    QueuePairOfId pair;
  };

  const TimingLine& line_;
  rdma_event_channel* channel_;
  Output output_;
  std::map<rdma_cm_id*, Connection> connections_;
};

}  // namespace

int run_timed_server(const TimingLine& line, rdma_event_channel* channel) {
  return Server(line, channel).run();
}

}  // namespace verbena::rdma_core
