// SPDX-License-Identifier: Apache-2.0
// Two network devices that are joined by an emulated link. Frames sent through one come out of the other, if
// and when the link's model lets them.
//
//     link_emulator eth0 eth1 --rate 1000 --queue 250000 --delay 1 --loss 0.001 --seed 7
//
// Prints "ready" when both devices exist and can be moved into network namespaces. Runs until SIGTERM, and
// then prints the counters of each direction as JSON.
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include <CLI/CLI.hpp>
#include <malloc.h>
#include <nlohmann/json.hpp>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "network/direction.h"
#include "network/options.h"
#include "network/tap.h"

using namespace verbena;
using namespace verbena::network;

namespace {

// Makes the random numbers of the other direction independent.
constexpr uint64_t kBackSeed = 0x6261'636b'0000'0001;

nlohmann::ordered_json report(const Direction& direction) {
  const net::LinkCounters& counters = direction.counters();
  return {{"packets", counters.packets},
          {"bytes", counters.bytes},
          {"lost", counters.lost},
          {"overflowed", counters.overflowed},
          {"too_large", counters.too_large},
          {"marked", counters.marked},
          {"corrupted", counters.corrupted},
          {"duplicated", counters.duplicated},
          {"early", counters.early},
          {"late", counters.late},
          {"longest_queue_bytes", counters.longest_queue_bytes},
          {"refused", direction.refused()}};
}

// A late tick delays packets, and a packet that is read late finds a longer queue than its sender caused. So
// this process takes precedence over the measured ones.
void prepare_thread() {
  ::prctl(PR_SET_TIMERSLACK, 1);
  (void)::setpriority(PRIO_PROCESS, 0, -15);  // without the privilege, the priority stays as it is
}

// Keeps freed memory for the next large frame. Memory that is given back to the kernel would fault in again,
// page by page.
void keep_memory() {
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

int carry(const Options& options) {
  keep_memory();
  const Tap first(options.devices[0]), second(options.devices[1]);
  Direction there(first, second, options.link_from(0), options.seed, options.direction);
  Direction back(second, first, options.link_from(1), options.seed ^ kBackSeed, options.direction);

  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGTERM);
  ::sigaddset(&ends, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  const auto run = [&stop](Direction& direction) {
    prepare_thread();
    if (direction.run(stop.get())) return;
    std::fputs("link_emulator: a device is gone\n", stderr);
    ::kill(::getpid(), SIGTERM);
  };
  std::thread threads[] = {std::thread(run, std::ref(there)), std::thread(run, std::ref(back))};

  std::puts("ready");
  std::fflush(stdout);
  int number;
  ::sigwait(&ends, &number);
  const uint64_t one = 1;
  (void)!::write(stop.get(), &one, sizeof one);
  for (std::thread& thread : threads) thread.join();

  const nlohmann::ordered_json all = {{"there", report(there)}, {"back", report(back)}};
  std::puts(all.dump(2).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Joins two network devices, which it makes, by a bad link", "link_emulator");
  Options options;
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  // Ends this process with the one that has started it, because no other would end it.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  try {
    return carry(options);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "link_emulator: %s\n", error.what());
    return 1;
  }
}
