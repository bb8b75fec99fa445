// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/events.h"

#include <cerrno>
#include <span>

#include <poll.h>

#include "commands/rdma_core/common/device_list.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {
namespace {

// An event or an errno, and the likely reason and the remedy.
struct Remedy {
  int what;
  const char* text;
};

constexpr const char* kSilent =
    "the other host does not answer: is RDMA there, and does UDP port 4791 pass both ways?";
constexpr const char* kRefused =
    "the other host refused: is the server running there, with this port and for this many connections?";

constexpr Remedy kEventRemedies[] = {
    {RDMA_CM_EVENT_ADDR_ERROR,
     "no link of this host leads to that address, or nobody has it; 'verbena link show' lists the links"},
    {RDMA_CM_EVENT_ROUTE_ERROR, "no link of this host leads to that address"},
    {RDMA_CM_EVENT_CONNECT_ERROR, "the connection was begun and not finished; the other end may have ended"},
    {RDMA_CM_EVENT_UNREACHABLE, kSilent},
    {RDMA_CM_EVENT_REJECTED, kRefused},
    {RDMA_CM_EVENT_MULTICAST_ERROR, "the group could not be joined: is the address a multicast address?"},
};

constexpr Remedy kErrnoRemedies[] = {
    {ENODEV, "no RDMA device has that address; 'verbena link show' lists the links"},
    {EADDRNOTAVAIL, "no link of this host has that address; 'verbena link show' lists the links"},
    {EADDRINUSE, "another program listens on that port"},
    {EACCES, "ports below 1024 are for the system's programs"},
    {ENETUNREACH, "no link of this host leads to that address"},
    {ENOMEM, "the adapter's or the user's limit is reached: fewer connections or smaller messages may do"},
    {ECONNREFUSED, kRefused},
    {ETIMEDOUT, kSilent},
};

const char* find(std::span<const Remedy> remedies, int what) {
  for (const Remedy& each : remedies) {
    if (each.what == what) return each.text;
  }
  return "";
}

}  // namespace

Channel first_channel() {
  Channel channel(rdma_create_event_channel());
  if (channel) return channel;
  const int error = errno;
  if (error == ENODEV) {
    complain("No RDMA devices were detected", kNoDeviceRemedy);
  } else {
    complain_of(error, "failed to create RDMA CM event channel");
  }
  errno = error;
  return nullptr;
}

void Patience::say() {
  said_ = true;
  complain("still waiting: " + words_());
}

Event next_event(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  return Event(rdma_get_cm_event(channel, &event) == 0 ? event : nullptr);
}

Event next_event(rdma_event_channel* channel, Patience& patience) {
  while (true) {
    pollfd listened = {channel->fd, POLLIN, 0};
    const int ready = poll(&listened, 1, patience.milliseconds());
    if (ready < 0 && errno != EINTR) return nullptr;
    if (ready == 0) patience.say();
    if (ready > 0) return next_event(channel);
  }
}

Event event_at_hand(rdma_event_channel* channel) {
  pollfd listened = {channel->fd, POLLIN, 0};
  return poll(&listened, 1, 0) == 1 ? next_event(channel) : nullptr;
}

const char* remedy_for(rdma_cm_event_type type) {
  return find(kEventRemedies, type);
}

const char* remedy_for_errno(int error) {
  return find(kErrnoRemedies, error);
}

int failed(const std::string& sentence) {
  const int error = errno;
  complain_of(error, sentence, remedy_for_errno(error));
  return -1;
}

void tell_failure(const Output& output, const std::string& sentence, const std::string& remedy) {
  if (output.json()) {
    complain(sentence, remedy);
    return;
  }
  output.text("%s\n", sentence.c_str());
  if (!remedy.empty()) complain("(" + remedy + ")");
}

}  // namespace verbena::rdma_core
