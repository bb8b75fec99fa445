// SPDX-License-Identifier: Apache-2.0
// Shows why the engine thread must not wake up too often while a program busy-polls: Linux's scheduler can
// starve a session whose threads spin and nap. It contains no code of Verbena.
//
// Two sessions of two processes each, one process on each of two processors, play ping-pong with a flag. Each
// process has a thread that naps. A third session of six processes computes as compilers do. Prints the
// longest round of each session. A round takes up to some tenths of a second if the scheduler is fair. It
// takes seconds if one session gets a processor for itself (Linux 6.18 with autogroups, naps of 2 ms or
// less).
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using Duration = std::chrono::duration<double>;

// Lifetime of a computing process, like a compiler's; several run at a time.
constexpr Duration kShortLife = std::chrono::milliseconds(100);
constexpr int kComputing = 6;

struct alignas(64) Session {
  std::atomic<uint64_t> turn{0};
  std::array<double, 2> longest_round{};  // in seconds, one per process
};

// Returns the first two processors that this process may use.
std::array<int, 2> two_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::array<int, 2> found{};
  size_t count = 0;
  for (int i = 0; i < CPU_SETSIZE && count < found.size(); ++i) {
    if (CPU_ISSET(i, &allowed)) found[count++] = i;
  }
  if (count == found.size()) return found;
  fmt::print(stderr, "two processors are needed\n");
  std::_Exit(EXIT_FAILURE);
}

void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fmt::print("cannot stay on processor {}\n", processor);
}

void play(Session& session, int rank, int processor, Duration nap, Duration time) {
  stay_on(processor);
  std::thread([nap] {
    for (;;) std::this_thread::sleep_for(nap);
  }).detach();
  const auto end = Clock::now() + time;
  auto last = Clock::now();
  double longest = 0;
  for (auto now = last; now < end;) {
    while (session.turn.load() % 2 != static_cast<uint64_t>(rank) && now < end) now = Clock::now();
    now = Clock::now();
    longest = std::max(longest, Duration(now - last).count());
    last = now;
    session.turn.fetch_add(1);
  }
  session.longest_round[static_cast<size_t>(rank)] = longest;
}

template <class Work>
pid_t in_a_process(Work work) {
  const pid_t pid = fork();
  if (pid < 0) {
    std::perror("fork");
    std::_Exit(EXIT_FAILURE);
  }
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the computing processes never end
  work();
  _exit(0);
}

void compute_for(Duration time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) continue;
}

// Runs all computing processes in one session.
void compute_in_a_session() {
  setsid();
  for (int i = 0; i < kComputing; ++i) {
    in_a_process([] {
      for (;;) waitpid(in_a_process([] { compute_for(kShortLife); }), nullptr, 0);
    });
  }
  for (;;) pause();
}

void play_both(Session& session, const std::array<int, 2>& processors, Duration nap, Duration time) {
  setsid();  // gives the session its own autogroup
  const pid_t other = in_a_process([&] { play(session, 1, processors[1], nap, time); });
  play(session, 0, processors[0], nap, time);
  waitpid(other, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Measures the longest round of two sessions that spin and nap, beside six processes that compute."};
  double nap_ms = 1;
  double seconds = 8;
  app.add_option("--nap", nap_ms, "milliseconds")->check(CLI::Range(0.01, 1000.0))->capture_default_str();
  app.add_option("--seconds", seconds)->check(CLI::Range(1.0, 600.0))->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  void* const memory =
      mmap(nullptr, 2 * sizeof(Session), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return EXIT_FAILURE;
  auto* const sessions = new (memory) Session[2];

  const auto processors = two_processors();
  const pid_t computing = in_a_process(compute_in_a_session);
  std::vector<pid_t> playing;
  for (int i = 0; i < 2; ++i) {
    playing.push_back(in_a_process(
        [&, i] { play_both(sessions[i], processors, Duration(nap_ms / 1000), Duration(seconds)); }));
  }
  for (const pid_t pid : playing) waitpid(pid, nullptr, 0);
  kill(computing, SIGKILL);
  waitpid(computing, nullptr, 0);
  for (int i = 0; i < 2; ++i) {
    const auto& longest = sessions[i].longest_round;
    fmt::print("session {}: naps of {} ms, longest round {:.3f} s\n", i, nap_ms,
               *std::ranges::max_element(longest));
  }
}
