// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/log/agent_log.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/served_users.h"
#include "agent/takeover/agent_name.h"
#include "base/command_line/command_line.h"
#include "base/format.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "commands/agent/beside_agent.h"
#include "control/client/agent_connection.h"
#include "control/model/agent_process.h"

namespace verbena::agent {
namespace {

// As in `verbena`, where 1 means that the command failed.
constexpr int kWrongUsage = 2;

constexpr const char* kDescription =
    "The Verbena agent: keeps the RDMA links of a network namespace and lends its UDP port 4791 to "
    "programs.\n"
    "\n"
    "The first program that needs it starts it, and it ends when it is idle. Start it yourself\n"
    "to have it stay: with --foreground under a service manager. Root's agent serves every user of the\n"
    "network namespace; an ordinary user's serves that user.";

struct Settings {
  bool foreground = false;
  double idle_seconds = 5;
  int ready_fd = -1;
  bool stands_by = false;
  bool mirror = false;
  std::string only_user;
  std::optional<uid_t> serve_only{};
  bool no_discovery = false;
};

// Enough descriptors for a dozen programs. A slot costs up to three descriptors here and four in the takeover
// state, a client three.
constexpr rlim_t kFewDescriptors = 128;

// Raises the descriptor limit, because the program that started the agent may have set a low one. A
// privileged agent also raises the hard limit.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  constexpr rlim_t kWanted = 65536;
  if (limit.rlim_max < kWanted) {
    const rlimit more{kWanted, kWanted};
    if (::setrlimit(RLIMIT_NOFILE, &more) == 0) return;
  }
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < kFewDescriptors) {
    log_warning(
        "at most {} descriptors may be open (RLIMIT_NOFILE of the program that started the agent): "
        "only few programs can be served; start verbena-agent from a shell with a higher limit",
        limit.rlim_max);
  }
}

// Enough for a status page, the messages of the takeover state and a capture: all shared memory is in memfds.
constexpr rlim_t kFewFileBytes = 1 << 20;

// Raises resource limits that the agent has inherited from the program that started it. Limits on that
// program's processor time, memory or files are not meant for the agent, which serves other programs, too.
// False: the remaining limits are too low to serve.
bool shed_inherited_limits() {
  for (const auto resource : {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_AS, RLIMIT_NPROC}) {
    rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(resource, &limit) == 0 || ::getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(resource, &limit);
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_FSIZE, &files) != 0 || files.rlim_cur >= kFewFileBytes) return true;
  std::fprintf(
      stderr,
      "verbena-agent: files may have no more than %llu bytes (ulimit -Hf) in the program that starts the "
      "agent, and it needs some in memory: start it beforehand\n",
      static_cast<unsigned long long>(files.rlim_cur));
  return false;
}

// Resets the scheduling that the agent has inherited. The program that started it may be pinned to one
// processor, run in real time or have a low priority (nice(1), a high oom_score_adj). Only root may raise the
// priority again.
void shed_inherited_scheduling() {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  ::sched_setaffinity(0, sizeof all, &all);
  const sched_param normal{};
  ::sched_setscheduler(0, SCHED_OTHER, &normal);
  ::setpriority(PRIO_PROCESS, 0, 0);
  std::ofstream("/proc/self/oom_score_adj") << '0';
}

UniqueFd catch_termination() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that would be too large causes an error instead of a signal
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Notifies the service manager as sd_notify(3) does: with one datagram.
void tell_service_manager(const char* state) {
  const char* path = ::secure_getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || std::strlen(path) >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  ::sendto(socket.get(), state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
           length);
}

// Returns the error message for the case that another agent of this user has the name. If that agent is
// stopped, it serves no program, and the message says so.
std::string describe_other_agent() {
  control::NamespaceDialer dialer({.start_agent = false, .agent_program = {}});
  const auto other = dialer.open();
  const pid_t pid = other ? other->agent_pid() : 0;
  const char state = control::process_state(pid);
  if (state == 'T' || state == 't') return control::describe_silence(pid);
  return verbena::format(
      "another agent of this user{} runs in this network namespace already; programs use that "
      "one ('verbena status'). To start another, end it first{}",
      pid > 0 ? verbena::format(" (pid {})", pid) : "", pid > 0 ? verbena::format(": kill {}", pid) : "");
}

// Runs without --foreground if no client started this process: leaves a copy running and returns when it
// listens.
int detach(const Settings& settings) {
  std::vector<std::string> options = {verbena::format("--idle-timeout={}", settings.idle_seconds)};
  if (settings.serve_only) options.push_back(verbena::format("--serve-only={}", *settings.serve_only));
  if (settings.no_discovery) options.push_back("--no-discovery");
  const auto ready = control::start_agent("/proc/self/exe", options);
  if (!ready) {
    std::fprintf(stderr, "verbena-agent: cannot start: %s\n", std::strerror(ready.error().code));
    return 1;
  }
  pollfd entry{ready->get(), POLLIN, 0};
  ::poll(&entry, 1, 5000);
  return 0;
}

std::string why_not_started(int error) {
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::strerror(error);
  return verbena::format(
      "at most {} descriptors may be open (ulimit -Hn) in the program that starts it: start "
      "verbena-agent beforehand, from a shell with a higher limit",
      limit.rlim_max);
}

// Switches the log from the pipe to a file. The pipe gets a last line that says so, unless it has no reader.
void leave_pipe(AgentLog& log) {
  log_info("the agent (pid {}) logs to {} from now on", ::getpid(), log_file_path());
  log.flush();
  const auto file = std::make_shared<LogFile>(log_file_path(), old_log_file_path());
  log.write_by([file](std::string_view line) { return file->put(line); });
}

// Runs the agent and returns when it is told to end. On error the agent cannot start, and has released all
// that it had taken.
Result<void> run_agent(AgentName name, const Settings& settings, UniqueFd ready, AgentLog& log) {
  const UniqueFd signals = catch_termination();  // not before: taking the name may take long
  AgentOptions options;
  options.idle_timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(settings.idle_seconds));
  if (settings.foreground) options.idle_timeout.reset();
  options.serve_only = settings.serve_only;
  options.discovery = !settings.no_discovery;
  Agent agent(std::move(name), options);
  if (const auto started = agent.start(); !started) return started;
  if (!settings.foreground && LogFile::is_needed()) leave_pipe(log);
  agent.loop().watch(signals.get(), EPOLLIN, [&](uint32_t) { agent.stop(); });
  ready.reset();
  if (settings.foreground) tell_service_manager("READY=1");
  log_info("serving user {}", ::geteuid());
  agent.run();
  if (settings.foreground) tell_service_manager("STOPPING=1");
  return {};
}

int serve(const Settings& settings) {
  AgentLog log([output = LogOutput()](std::string_view line) mutable { return output.put(line); });
  ::umask(022);  // all users may read the state directory
  raise_descriptor_limit();
  if (!settings.foreground) {
    shed_inherited_scheduling();
    if (!shed_inherited_limits()) return 1;
  }
  UniqueFd ready(settings.ready_fd);

  auto name = AgentName::take(take_passed_socket());
  if (!name) {
    const bool exists = name.error().code == EADDRINUSE;
    if (exists && !settings.foreground) return 0;  // another starter was faster
    std::fprintf(stderr, "verbena-agent: %s\n",
                 exists ? describe_other_agent().c_str() : std::strerror(name.error().code));
    return 1;
  }
  if (const auto ran = run_agent(std::move(*name), settings, std::move(ready), log); !ran) {
    std::fprintf(stderr, "verbena-agent: cannot start: %s\n", why_not_started(ran.error().code).c_str());
    return 1;
  }
  return 0;
}

// Runs a mirror. Returns when there is nothing more to show.
int show_devices(const Settings& settings) {
  static std::string name = kMirrorName;
  program_invocation_short_name = name.data();  // the program name in the client's hello
  ::prctl(PR_SET_NAME, name.data());
  const AgentLog log([output = LogOutput()](std::string_view line) mutable { return output.put(line); });
  ::umask(022);
  shed_inherited_scheduling();
  if (!shed_inherited_limits()) return 1;
  UniqueFd ready(settings.ready_fd);
  return mirror_devices(std::move(ready), catch_termination());
}

// Returns the user with this name or number.
std::optional<uid_t> find_user(const std::string& text) {
  if (const passwd* entry = ::getpwnam(text.c_str())) return entry->pw_uid;
  uid_t uid = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, uid);
  if (read.ec != std::errc() || read.ptr != end || uid == static_cast<uid_t>(-1)) return std::nullopt;
  return uid;
}

// False after an error message to the user.
bool find_only_user(Settings& settings) {
  settings.serve_only = find_user(settings.only_user);
  if (settings.serve_only && ::geteuid() == 0) return true;
  std::fprintf(
      stderr, "verbena-agent: %s\n",
      settings.serve_only
          ? "--serve-only is for root's agent: another serves its own user alone, so leave it out"
          : verbena::format("--serve-only: there is no user '{}'; give a name or a number, as 'getent "
                            "passwd' lists them",
                            printable(settings.only_user))
                .c_str());
  return false;
}

int run(int argc, char** argv) {
  Settings settings;
  CLI::App app(kDescription, "verbena-agent");
  app.option_defaults()->disable_flag_override();
  app.set_version_flag("--version", VERBENA_VERSION);
  app.add_flag("-f,--foreground", settings.foreground,
               "Stay in the foreground, and never end for being idle");
  app.add_option("--idle-timeout", settings.idle_seconds,
                 "End after so many seconds without clients and without links made by the user")
      ->capture_default_str()
      ->transform(command_line::decimal_number("a number of seconds from 0 to 1000000", 0, 1e6))
      ->type_name("SECONDS");
  app.add_option("--serve-only", settings.only_user,
                 "Root's agent: serve root and this user, and nobody else. Their programs get sockets of the "
                 "port; to those of further users the agent would hand packets over, which is slower")
      ->type_name("USER");
  app.add_flag("--no-discovery", settings.no_discovery,
               "Do not look for the agents of other hosts, and do not let them know of this one");
  app.add_flag("--keep-vault", settings.stands_by, "Only hold the takeover state of root's agent")->group("");
  app.add_flag("--mirror", settings.mirror,
               "Only show the agent's devices where its own directory is not seen")
      ->group("");
  app.add_option("--ready-fd", settings.ready_fd, "Close this descriptor when listening")
      ->transform(command_line::whole_number("a descriptor", 0, INT_MAX))
      ->group("");
  app.footer(
      "VERBENA_LOG=error|warning|info|debug makes the agent say what it does, on standard error; where a\n"
      "program has started it and that is a pipe, in the file log-NETNS beside the agent's directory. Lines "
      "that\n"
      "cannot be written, and those of a user beyond 50 in ten seconds, are left out and counted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_text) {  // --help, --version
    return app.exit(asked_for_text);
  } catch (const CLI::ParseError& error) {
    verbena::print(stderr, "verbena-agent: {}\nTry 'verbena-agent --help'.\n",
                   command_line::what_is_wrong(app, error));
    return kWrongUsage;
  }
  if (settings.stands_by) {
    const AgentLog log([output = LogOutput()](std::string_view line) mutable { return output.put(line); });
    return stand_by();
  }
  if (settings.mirror) return show_devices(settings);
  if (app.count("--serve-only") > 0 && !find_only_user(settings)) return 1;
  if (!settings.foreground && settings.ready_fd < 0) return detach(settings);
  return serve(settings);
}

}  // namespace
}  // namespace verbena::agent

int main(int argc, char** argv) {
  try {
    return verbena::agent::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbena-agent: %s\n", error.what());
    return 1;
  }
}
