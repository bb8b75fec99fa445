// SPDX-License-Identifier: Apache-2.0
// A process forks in every way and in every state, and goes on unharmed. Its children end as they should, or
// open devices again and use them.
//
//     fork_states ADDRESS PROGRAM    PROGRAM: executed by children, itself with the words `child ADDRESS`
//     fork_states child ADDRESS      opens the device, does some rounds, and looks for foreign descriptors
//
// Prints a line for each case; exits with 0 if all is well.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chaos/end.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 20;
constexpr std::chrono::seconds kPatience(20);
constexpr std::chrono::microseconds kBetweenChanges(300);  // gives children a turn on few processors

const char* address = nullptr;
const char* self = nullptr;
bool is_well = true;

bool check(bool holds, const std::string& what) {
  if (holds) return true;
  std::printf("WRONG %s (errno %s)\n", what.c_str(), std::strerror(errno));
  std::fflush(stdout);
  is_well = false;
  return false;
}

// Two ends in this process that exchange messages.
class Pair {
 public:
  explicit Pair(end_wait wait = kEndSpins) : a_(end_open(address, wait)), b_(end_open(address, wait)) {
    check(a_ != nullptr && b_ != nullptr, "ends");
    if (a_ != nullptr && b_ != nullptr) check(end_join_each_other(a_, b_) == 0, "joining");
  }
  ~Pair() { check(close() == 0, "closing"); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  bool talk(int rounds = kRounds) {
    for (int i = 0; i < rounds; ++i) {
      const int error = end_both(a_, b_, next_++);
      if (!check(error == 0,
                 "round " + std::to_string(next_) + ": " + std::to_string(error) + " " + end_error(a_)))
        return false;
    }
    return true;
  }
  // Registers and deregisters memory in the first end's context.
  bool register_and_write() {
    static char from[64];
    return check(end_write_from(a_, from, sizeof from, 0) == 0, "registering and writing");
  }
  int close() {
    int error = 0;
    for (end** one : {&a_, &b_}) {
      if (*one != nullptr) error |= end_close(*one);
      *one = nullptr;
    }
    return error;
  }

 private:
  end* a_;
  end* b_;
  uint64_t next_ = 0;
};

// A thread that exchanges messages all the time.
class Traffic {
 public:
  explicit Traffic(end_wait wait)
      : pair_(wait), thread_([this] {
          while (!stops_ && pair_.talk(1)) ++rounds_;
        }) {}
  ~Traffic() {
    stops_ = true;
    thread_.join();
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  void await_some() {
    const uint64_t before = rounds_;
    const auto end = Clock::now() + kPatience;
    while (rounds_ < before + 3 && Clock::now() < end) std::this_thread::yield();
    check(rounds_ >= before + 3, "traffic stands still");
  }

 private:
  Pair pair_;
  std::atomic<bool> stops_{false};
  std::atomic<uint64_t> rounds_{0};
  std::thread thread_;
};

// ---- children

// Expects that a child ends, in time and with 0.
void reap(pid_t child, const std::string& what) {
  if (!check(child > 0, what + ": no child")) return;
  int status = 0;
  const auto end = Clock::now() + kPatience;
  pid_t ended = 0;
  while ((ended = ::waitpid(child, &status, WNOHANG)) == 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (ended == 0) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    check(false, what + ": the child hangs");
  }
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        what + ": the child ends with " + std::to_string(status));
}

void forked(const std::string& what, const std::function<void()>& body, bool by_exit = false) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    is_well = true;
    body();
    std::fflush(stdout);
    if (by_exit) std::exit(is_well ? 0 : 1);
    ::_exit(is_well ? 0 : 1);
  }
  reap(child, what);
}

std::vector<char*> own_command() {
  static std::string words[] = {self, "child", address};
  return {words[0].data(), words[1].data(), words[2].data(), nullptr};
}

void execute() {
  ::execv(self, own_command().data());
  check(false, "exec");
}

void spawn() {
  pid_t child = 0;
  errno = ::posix_spawn(&child, self, nullptr, nullptr, own_command().data(), environ);
  check(errno == 0, "posix_spawn");
  reap(child, "posix_spawn");
}

void vfork_and_execute() {
  auto command = own_command();
  const pid_t child = ::vfork();
  if (child == 0) {
    ::execv(self, command.data());
    ::_exit(127);
  }
  reap(child, "vfork and exec");
}

void work_again() {
  Pair fresh;
  fresh.talk();
}

// Closes all descriptors, as a daemon does.
void close_everything() {
  for (int fd = 3; fd < 1024; ++fd) ::close(fd);
}

void fork_twice() {
  forked("a child's child", work_again);
}

// Runs everything that a child may do. `state` names the parent's state.
void all_children(const std::string& state, const std::function<void()>& after_each) {
  const auto step = [&](const std::string& what, const auto& body) {
    body();
    after_each();
    std::printf("%s: %s\n", state.c_str(), what.c_str());
    std::fflush(stdout);
  };
  step("a child that does nothing", [&] { forked("_exit", [] {}); });
  step("a child that ends by exit(3)", [&] {
    forked(
        "exit", [] {}, true);
  });
  step("a child that executes a program", [&] { forked("exec", execute); });
  step("a child that opens the device again", [&] { forked("again", work_again); });
  step("a child that opens the device again and ends by exit(3)",
       [&] { forked("again, exit", work_again, true); });
  step("a child that closes everything and opens the device again", [&] {
    forked("close", [] {
      close_everything();
      work_again();
    });
  });
  step("a child's child", [&] { forked("twice", fork_twice); });
  step("vfork", vfork_and_execute);
  step("posix_spawn", spawn);
}

// ---- states of the parent

void before_anything() {
  all_children("before anything", [] {});
}

void with_a_list() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  all_children("with a list of devices", [] {});
  ibv_free_device_list(list);
}

void opened() {
  Pair pair;
  all_children("connected", [&] { pair.talk(); });
}

void at_work(end_wait wait, const char* name) {
  Traffic traffic(wait);
  all_children(name, [&] { traffic.await_some(); });
}

// ---- connections by address

rdma_cm_event_type next_event(rdma_event_channel* channel) {
  pollfd entry{channel->fd, POLLIN, 0};
  rdma_cm_event* event = nullptr;
  if (!check(::poll(&entry, 1, 5000) == 1, "no event")) return RDMA_CM_EVENT_DEVICE_REMOVAL;
  if (!check(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event"))
    return RDMA_CM_EVENT_DEVICE_REMOVAL;
  const rdma_cm_event_type type = event->event;
  rdma_ack_cm_event(event);
  return type;
}

// An event of the parent is pending while children come and go.
void with_a_pending_event() {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  ::inet_pton(AF_INET, address, &at.sin_addr);
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  if (!check(channel != nullptr && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "an identifier"))
    return;
  check(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&at), 2000) == 0, "rdma_resolve_addr");
  pollfd entry{channel->fd, POLLIN, 0};
  check(::poll(&entry, 1, 5000) == 1, "no event");
  all_children("with an event of a connection pending", [] {});
  forked("destroys what is its parent's", [&] {
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  });
  check(next_event(channel) == RDMA_CM_EVENT_ADDR_RESOLVED, "another event than ADDR_RESOLVED");
  check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
  check(next_event(channel) == RDMA_CM_EVENT_ROUTE_RESOLVED, "another event than ROUTE_RESOLVED");
  check(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

// Threads create and destroy all kinds of objects, so that fork(2) finds various locks taken.
void at_changes(int forks) {
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  const auto repeat = [&](const std::function<void()>& body) {
    threads.emplace_back([&stops, body] {
      while (!stops) {
        body();
        std::this_thread::sleep_for(kBetweenChanges);
      }
    });
  };
  repeat([] { Pair().talk(1); });
  repeat([] {
    int count = 0;
    ibv_free_device_list(ibv_get_device_list(&count));
    check(count > 0, "no devices");
  });
  repeat([] {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    check(channel != nullptr && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "an identifier");
    if (id != nullptr) rdma_destroy_id(id);
    if (channel != nullptr) rdma_destroy_event_channel(channel);
  });
  repeat([] {
    const int socket = ::rsocket(AF_INET, SOCK_STREAM, 0);
    check(socket >= 0 && ::rclose(socket) == 0, "an rsocket");
  });
  Pair inherited;
  repeat([&] { inherited.register_and_write(); });
  for (int i = 0; i < forks; ++i) {
    forked(
        "at changes",
        [i, &inherited] {
          if (i % 4 == 0) work_again();
          if (i % 4 == 1) {
            const int socket = ::rsocket(AF_INET, SOCK_STREAM, 0);
            check(socket >= 0 && ::rclose(socket) == 0, "an rsocket in a child");
          }
          if (i % 4 == 2) execute();
          if (i % 4 == 3) inherited.close();  // regions of the other thread may still exist
        },
        i % 8 < 4);
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%d children while threads make and destroy everything\n", forks);
}

// daemon(3) ends the parent and leaves a child: objects created before belonged to the parent, and are lost.
void daemons() {
  for (const bool opens_before : {false, true}) {
    forked("daemon", [&] {
      std::array<int, 2> ends;
      if (!check(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe")) return;
      std::fflush(stdout);
      // The starter waits for the daemon's result, since the daemon is no child of its own.
      const pid_t starter = ::fork();
      if (starter == 0) {
        std::optional<Pair> before;
        if (opens_before) before.emplace();
        if (opens_before) before->talk();
        if (::daemon(0, 1) != 0) ::_exit(1);
        is_well = true;
        work_again();
        if (opens_before) check(before->close() == 0, "closing what was the parent's");
        const char answer = is_well ? 'y' : 'n';
        [[maybe_unused]] const ssize_t told = ::write(ends[1], &answer, 1);
        std::exit(0);
      }
      ::close(ends[1]);
      reap(starter, "daemon's starter");
      char answer = 0;
      pollfd entry{ends[0], POLLIN, 0};
      check(::poll(&entry, 1, 10000) == 1 && ::read(ends[0], &answer, 1) == 1 && answer == 'y', "the daemon");
    });
    std::printf("daemon(3) %s the device is opened\n", opens_before ? "after" : "before");
  }
}

// ---- as a program that was executed

// Descriptors open at the start were inherited from a process that uses our library.
bool has_only_standard_descriptors() {
  bool only = true;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone);
    if (fd <= 2 || target.find("/proc/") == 0) continue;
    std::printf("descriptor %d: %s\n", fd, target.c_str());
    only = false;
  }
  return only;
}

int child_main() {
  check(has_only_standard_descriptors(), "a descriptor was passed on");
  work_again();
  return is_well ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string own = fs::read_symlink("/proc/self/exe");
  self = own.c_str();
  address = argv[argc - 1];
  if (std::string_view(argv[1]) == "child") return child_main();
  if (std::string_view(argv[1]) == "prepared") check(ibv_fork_init() == 0, "ibv_fork_init");
  before_anything();
  with_a_list();
  opened();
  at_work(kEndSpins, "while a thread polls");
  at_work(kEndSleeps, "while a thread sleeps and the engine's is busy");
  with_a_pending_event();
  at_changes(120);
  daemons();
  std::puts(is_well ? "all is well" : "something is WRONG");
  return is_well ? 0 : 1;
}
