// SPDX-License-Identifier: Apache-2.0
// Sends "hello" from one queue pair of this process to another, and prints what arrives.
#include <cstdio>
#include <cstring>

#include <verbena/verbs.hpp>

using namespace verbena;

namespace {

void run() {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const cq queue = device.make_cq(16).value();
  const qp near = domain.make_qp(rc, {.send_cq = queue}).value();
  const qp far = domain.make_qp(rc, {.send_cq = queue}).value();
  near.connect(far.local_endpoint().value()).value();
  far.connect(near.local_endpoint().value()).value();

  const region from = domain.allocate(4096).value();
  const region into = domain.allocate(4096).value();
  std::memcpy(from.data(), "hello", 6);
  far.post(recv(into)).value();
  near.post(send(from.first(6))).value();
  for (bool received = false; !received;) {
    for (const completion& each : queue.poll()) {
      if (!each) throw exception(each.error());
      received |= each.is_receive();
    }
  }
  std::puts(reinterpret_cast<const char*>(into.data()));
}

}  // namespace

int main() {
  try {
    run();
  } catch (const exception& failed) {
    std::fprintf(stderr, "consumer: %s\n", failed.what());
    return 1;
  }
}
