// SPDX-License-Identifier: Apache-2.0
// Preloaded into an agent, ends it if its main thread closes a Unix socket that it has sent to a client. If
// the client has closed its own copy by then, the agent's close is the last one. It waits for the epoll(7)
// sets that contain the socket, and the client can hold their locks for good. So another thread must close
// the socket (ForeignCloser).
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kMax = 1 << 16 };
static atomic_bool is_sent[kMax];

static int domain_of(int fd) {
  int domain = -1;
  socklen_t bytes = sizeof domain;
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes);
  return domain;
}

static void note(const struct msghdr* message) {
  struct msghdr copy = *message;
  for (struct cmsghdr* each = CMSG_FIRSTHDR(&copy); each != NULL; each = CMSG_NXTHDR(&copy, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    // The third descriptor of a reply is the takeover state's socket, which only the agent's own user gets.
    for (size_t i = 0; i < 2 && CMSG_LEN((i + 1) * sizeof(int)) <= each->cmsg_len; ++i) {
      int sent = -1;
      memcpy(&sent, CMSG_DATA(each) + i * sizeof sent, sizeof sent);
      if (sent >= 0 && sent < kMax && domain_of(sent) == AF_UNIX) is_sent[sent] = true;
    }
  }
}

static void check(int fd) {
  if (fd < 0 || fd >= kMax || !atomic_exchange(&is_sent[fd], false) || gettid() != getpid()) return;
  static const char kWhy[] = "the agent's main thread closes a Unix socket that it has sent\n";
  if (write(STDERR_FILENO, kWhy, sizeof kWhy - 1) < 0) abort();
  abort();
}

// The agent sends and closes by bare system calls.
long syscall(long number, ...) {
  typedef long Syscall(long, ...);
  static Syscall* real;
  if (real == NULL) real = (Syscall*)dlsym(RTLD_NEXT, "syscall");
  va_list rest;
  va_start(rest, number);
  long each[6];
  for (int i = 0; i < 6; ++i) each[i] = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_sendmsg) note((const struct msghdr*)each[1]);
  if (number == SYS_close) check((int)each[0]);
  return real(number, each[0], each[1], each[2], each[3], each[4], each[5]);
}
