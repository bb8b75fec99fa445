// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/programs.h"

#include <cstdio>
#include <string_view>

namespace verbena::rdma_core {

namespace {

struct Help {
  std::string_view program;
  const char* text;
};

constexpr Help kHelps[] = {
    {"rping",
     "\n"
     "Options:\n"
     "  -s                   be the server\n"
     "  -c                   be a client\n"
     "  -a ADDRESS           the server's address; a server listens on it, or on all of IPv4 (::0 is all of "
     "IPv6)\n"
     "  -I ADDRESS           the client's own address\n"
     "  -p PORT              the server's port; 7174 if nothing is said\n"
     "  -S BYTES             how long a ping is, 23 to 65535, the same at both ends; 64 if nothing is said\n"
     "  -C COUNT             how many pings; without end if nothing is said\n"
     "  -v                   print each ping\n"
     "  -V                   compare what came back with what was sent\n"
     "  -d                   print each step\n"
     "  -P                   serve one client after the other, many at a time, until killed\n"
     "  -q                   make the queue pair by libibverbs and bring it up without librdmacm, at this "
     "end\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  rping -s -v\n"
     "  rping -c -a 192.0.2.1 -C 10 -v -V\n"
     "  rping -c -a 192.0.2.1 -C 1000 --json\n"
     "\n"
     "Exit status: 0 done; 22 wrong usage; else another number, after a sentence that says why.\n"},
    {"ucmatose",
     "\n"
     "Options:\n"
     "  -s ADDRESS           be a client of the server that has this address\n"
     "  -b ADDRESS           the address of this host; without it any\n"
     "  -c COUNT             how many connections, the same at both ends; 1 if nothing is said\n"
     "  -C COUNT             how many messages each way, the same at both ends; 10 if nothing is said\n"
     "  -S BYTES             how long a message is; 100 if nothing is said\n"
     "  -f FORMAT            what addresses are: name, ip, ipv6 or gid\n"
     "  -P SPACE             the port space: tcp or ib\n"
     "  -t TOS               the type of service, 0 to 255\n"
     "  -p PORT              the server's port; 7471 if nothing is said\n"
     "  -m                   move all connections to another event channel before they end\n"
     "  -a EXPONENT          the ACK timeout, 4.096 usec times 2 to this power\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  ucmatose\n"
     "  ucmatose -s 192.0.2.1\n"
     "  ucmatose -s 192.0.2.1 -c 100 -C 1000 -S 4096 --json\n"
     "\n"
     "Exit status: 0 done; 1 wrong usage; else another number, after a sentence that says why.\n"},
    {"udaddy",
     "\n"
     "Options:\n"
     "  -s ADDRESS           be a client of the server that has this address\n"
     "  -b ADDRESS           the address of this host; without it any\n"
     "  -c COUNT             how many connections, the same at both ends; 1 if nothing is said\n"
     "  -C COUNT             how many messages each way, the same at both ends; 10 if nothing is said\n"
     "  -S BYTES             how long a message is; 100 if nothing is said\n"
     "  -f FORMAT            what addresses are: name, ip, ipv6 or gid\n"
     "  -P SPACE             the port space: udp or ipoib\n"
     "  -t TOS               the type of service, 0 to 255\n"
     "  -p SPACE             the port space as a number: 0x111 is UDP, 0x2 IPoIB\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  udaddy\n"
     "  udaddy -s 192.0.2.1\n"
     "  udaddy -s 192.0.2.1 -c 5 -C 20 -S 1000 --json\n"
     "\n"
     "Exit status: 0 done; 1 wrong usage; else another number, after a sentence that says why.\n"},
    {"mckey",
     "\n"
     "Options:\n"
     "  -m ADDRESS           the group's address\n"
     "  -M GID               the group's GID, in place of -m; with -b\n"
     "  -s                   send; receive if nothing is said\n"
     "  -b ADDRESS           the address of this host; by the routing table without it\n"
     "  -c COUNT             how many members to join; 1 if nothing is said\n"
     "  -C COUNT             how many messages; 10 if nothing is said\n"
     "  -S BYTES             how long a message is; 100 if nothing is said\n"
     "  -p SPACE             the port space as a number: 0x111 is UDP, 0x2 IPoIB\n"
     "  -o                   join to send only\n"
     "  -l                   do not hear what the same queue pair sends\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  mckey -m 239.47.91.3 -b 192.0.2.1\n"
     "  mckey -m 239.47.91.3 -b 192.0.2.2 -s\n"
     "\n"
     "Exit status: 0 done; 1 wrong usage; else another number, after a sentence that says why.\n"},
    {"cmtime",
     "\n"
     "Options:\n"
     "  -s ADDRESS           be a client of the server that has this address\n"
     "  -b ADDRESS           the address of this host; without it any\n"
     "  -c COUNT             how many connections; 100 if nothing is said\n"
     "  -p PORT              the server's port; 7471 if nothing is said\n"
     "  -r RETRIES           how often to ask for an address or a route once more; 2 if nothing is said\n"
     "  -t MILLISECONDS      how long to wait for an address or a route; 2000 if nothing is said\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  cmtime\n"
     "  cmtime -s 192.0.2.1\n"
     "  cmtime -s 192.0.2.1 -c 1000 --json\n"
     "\n"
     "Exit status: 0 done, also if some connections failed, which are told of; 1 wrong usage; else another "
     "number, after a sentence that says why.\n"},
    {"rdma_client",
     "\n"
     "Options:\n"
     "  -s ADDRESS           the server's address; 127.0.0.1 if nothing is said\n"
     "  -p PORT              the server's port; 7471 if nothing is said\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  rdma_client -s 192.0.2.1\n"
     "  rdma_client -s 192.0.2.1 --json\n"
     "\n"
     "Exit status: 0 done; 1 wrong usage; else another number, after a sentence that says why.\n"},
    {"rdma_server",
     "\n"
     "Options:\n"
     "  -s ADDRESS           the address to listen on; all of IPv4 if nothing is said\n"
     "  -p PORT              the port to listen on; 7471 if nothing is said\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  rdma_server\n"
     "  rdma_server -s 192.0.2.1 -p 7472 --json\n"
     "\n"
     "Exit status: 0 done; 1 wrong usage; else another number, after a sentence that says why.\n"},
    {"rdma_xclient",
     "\n"
     "Options:\n"
     "  -s ADDRESS           the server's address; 127.0.0.1 if nothing is said\n"
     "  -p PORT              the server's port; 7471 if nothing is said\n"
     "  -c TYPE              r for RC, x for XRC; RC if nothing is said\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  rdma_xclient -s 192.0.2.1 -c x\n"
     "  rdma_xclient -s 192.0.2.1 -c x --json\n"
     "\n"
     "Exit status: 0 done; 1 wrong usage; else another number, after a sentence that says why.\n"},
    {"rdma_xserver",
     "\n"
     "Options:\n"
     "  -p PORT              the port to listen on; 7471 if nothing is said\n"
     "  -c TYPE              r for RC, x for XRC; RC if nothing is said\n"
     "  --json               print one JSON object at the end, and nothing else\n"
     "  --help               print this and exit\n"
     "\n"
     "Examples:\n"
     "  rdma_xserver -c x\n"
     "  rdma_xserver -c x --json\n"
     "\n"
     "Exit status: 0 done; 1 wrong usage; else another number, after a sentence that says why.\n"},
};

}  // namespace

void print_help(const char* program) {
  for (const Help& each : kHelps) {
    if (each.program == program) std::fputs(each.text, stdout);
  }
}

}  // namespace verbena::rdma_core
