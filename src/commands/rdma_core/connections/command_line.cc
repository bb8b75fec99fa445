// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

namespace verbena::rdma_core {
namespace {

// The texts of one program. Its usage text is rdma-core's.
struct Help {
  std::string_view program;
  int wrong_usage;    // exit status
  const char* usage;  // without its first line, unless that does not name the program
  const char* options;
  const char* examples;
  const char* done;  // exit status 0, and its meaning
};

constexpr Help kHelps[] = {
    {"rping", EINVAL,
     "rping -s [-vVd] [-S size] [-C count] [-a addr] [-p port]\n"
     "rping -c [-vVd] [-S size] [-C count] [-I addr] -a addr [-p port]\n"
     "\t-c\t\tclient side\n"
     "\t-I\t\tSource address to bind to for client.\n"
     "\t-s\t\tserver side.  To bind to any address with IPv6 use -a ::0\n"
     "\t-v\t\tdisplay ping data to stdout\n"
     "\t-V\t\tvalidate ping data\n"
     "\t-d\t\tdebug printfs\n"
     "\t-S size \tping data size\n"
     "\t-C count\tping count times\n"
     "\t-a addr\t\taddress\n"
     "\t-p port\t\tport\n"
     "\t-P\t\tpersistent server mode allowing multiple connections\n"
     "\t-q\t\tuse self-created, self-modified QP\n"
     "\t--json\t\tprint the result as JSON\n",
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
     "end\n",
     "  rping -s -v\n"
     "  rping -c -a 192.0.2.1 -C 10 -v -V\n"
     "  rping -c -a 192.0.2.1 -C 1000 --json\n",
     "0 done"},
    {"ucmatose", 1,
     "\t[-s server_address]\n"
     "\t[-b bind_address]\n"
     "\t[-f address_format]\n"
     "\t    name, ip, ipv6, or gid\n"
     "\t[-P port_space]\n"
     "\t    tcp or ib\n"
     "\t[-c connections]\n"
     "\t[-C message_count]\n"
     "\t[-S message_size]\n"
     "\t[-t type_of_service]\n"
     "\t[-p port_number]\n"
     "\t[-m(igrate)]\n"
     "\t[-a ack_timeout]\n",
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
     "  -a EXPONENT          the ACK timeout, 4.096 usec times 2 to this power\n",
     "  ucmatose\n"
     "  ucmatose -s 192.0.2.1\n"
     "  ucmatose -s 192.0.2.1 -c 100 -C 1000 -S 4096 --json\n",
     "0 done"},
    {"udaddy", 1,
     "\t[-s server_address]\n"
     "\t[-b bind_address]\n"
     "\t[-f address_format]\n"
     "\t    name, ip, ipv6, or gid\n"
     "\t[-P port_space]\n"
     "\t    udp or ipoib\n"
     "\t[-c connections]\n"
     "\t[-C message_count]\n"
     "\t[-S message_size]\n"
     "\t[-t type_of_service]\n"
     "\t[-p port_space - 0x111 for UDP (default), 0x2 for IPOIB]\n",
     "  -s ADDRESS           be a client of the server that has this address\n"
     "  -b ADDRESS           the address of this host; without it any\n"
     "  -c COUNT             how many connections, the same at both ends; 1 if nothing is said\n"
     "  -C COUNT             how many messages each way, the same at both ends; 10 if nothing is said\n"
     "  -S BYTES             how long a message is; 100 if nothing is said\n"
     "  -f FORMAT            what addresses are: name, ip, ipv6 or gid\n"
     "  -P SPACE             the port space: udp or ipoib\n"
     "  -t TOS               the type of service, 0 to 255\n"
     "  -p SPACE             the port space as a number: 0x111 is UDP, 0x2 IPoIB\n",
     "  udaddy\n"
     "  udaddy -s 192.0.2.1\n"
     "  udaddy -s 192.0.2.1 -c 5 -C 20 -S 1000 --json\n",
     "0 done"},
    {"mckey", 1,
     "\t-m multicast_address\n"
     "\t[-M unmapped_multicast_address]\n\t replaces -m and requires -b\n"
     "\t[-s(ender)]\n"
     "\t[-b bind_address]\n"
     "\t[-c connections]\n"
     "\t[-C message_count]\n"
     "\t[-S message_size]\n"
     "\t[-p port_space - 0x111 for UDP (default), 0x2 for IPOIB]\n"
     "\t[-o join as a send-only full-member]\n"
     "\t[-l join without multicast loopback]\n",
     "  -m ADDRESS           the group's address\n"
     "  -M GID               the group's GID, in place of -m; with -b\n"
     "  -s                   send; receive if nothing is said\n"
     "  -b ADDRESS           the address of this host; by the routing table without it\n"
     "  -c COUNT             how many members to join; 1 if nothing is said\n"
     "  -C COUNT             how many messages; 10 if nothing is said\n"
     "  -S BYTES             how long a message is; 100 if nothing is said\n"
     "  -p SPACE             the port space as a number: 0x111 is UDP, 0x2 IPoIB\n"
     "  -o                   join to send only\n"
     "  -l                   do not hear what the same queue pair sends\n",
     "  mckey -m 239.47.91.3 -b 192.0.2.1\n"
     "  mckey -m 239.47.91.3 -b 192.0.2.2 -s\n",
     "0 done"},
    {"cmtime", 1,
     "\t[-s server_address]\n"
     "\t[-b bind_address]\n"
     "\t[-c connections]\n"
     "\t[-p port_number]\n"
     "\t[-r retries]\n"
     "\t[-t timeout_ms]\n",
     "  -s ADDRESS           be a client of the server that has this address\n"
     "  -b ADDRESS           the address of this host; without it any\n"
     "  -c COUNT             how many connections; 100 if nothing is said\n"
     "  -p PORT              the server's port; 7471 if nothing is said\n"
     "  -r RETRIES           how often to ask for an address or a route once more; 2 if nothing is said\n"
     "  -t MILLISECONDS      how long to wait for an address or a route; 2000 if nothing is said\n",
     "  cmtime\n"
     "  cmtime -s 192.0.2.1\n"
     "  cmtime -s 192.0.2.1 -c 1000 --json\n",
     "0 done, also if some connections failed, which are told of"},
    {"rdma_client", 1,
     "\t[-s server_address]\n"
     "\t[-p port_number]\n",
     "  -s ADDRESS           the server's address; 127.0.0.1 if nothing is said\n"
     "  -p PORT              the server's port; 7471 if nothing is said\n",
     "  rdma_client -s 192.0.2.1\n"
     "  rdma_client -s 192.0.2.1 --json\n",
     "0 done"},
    {"rdma_server", 1,
     "\t[-s server_address]\n"
     "\t[-p port_number]\n",
     "  -s ADDRESS           the address to listen on; all of IPv4 if nothing is said\n"
     "  -p PORT              the port to listen on; 7471 if nothing is said\n",
     "  rdma_server\n"
     "  rdma_server -s 192.0.2.1 -p 7472 --json\n",
     "0 done"},
    {"rdma_xclient", 1,
     "\t[-s server]\n"
     "\t[-p port_number]\n"
     "\t[-c communication type]\n"
     "\t    r - RC: reliable-connected (default)\n"
     "\t    x - XRC: extended-reliable-connected\n",
     "  -s ADDRESS           the server's address; 127.0.0.1 if nothing is said\n"
     "  -p PORT              the server's port; 7471 if nothing is said\n"
     "  -c TYPE              r for RC, x for XRC; RC if nothing is said\n",
     "  rdma_xclient -s 192.0.2.1 -c x\n"
     "  rdma_xclient -s 192.0.2.1 -c x --json\n",
     "0 done"},
    {"rdma_xserver", 1,
     "\t[-p port_number]\n"
     "\t[-c communication type]\n"
     "\t    r - RC: reliable-connected (default)\n"
     "\t    x - XRC: extended-reliable-connected\n",
     "  -p PORT              the port to listen on; 7471 if nothing is said\n"
     "  -c TYPE              r for RC, x for XRC; RC if nothing is said\n",
     "  rdma_xserver -c x\n"
     "  rdma_xserver -c x --json\n",
     "0 done"},
};

}  // namespace

Option decimal(char letter, int& value, int least, int most) {
  return number_to(
      letter, nullptr, least, most, [&value](long long read) { value = static_cast<int>(read); }, 10);
}

Option octet(char letter, std::function<void(unsigned char)> take) {
  return number_to(letter, nullptr, 0, 255,
                   [take = std::move(take)](long long value) { take(static_cast<unsigned char>(value)); });
}

Letters parse_letters(int argc, char** argv, const std::vector<Option>& options, bool quiet) {
  Letters letters;
  std::vector<char*> words;
  bool before_operands = true;
  for (char** word = argv; word != argv + argc; ++word) {
    const std::string_view text = *word;
    if (before_operands && text == "--help") return {Next::kStop, false};
    if (before_operands && text == "--json") {
      letters.json = true;
      continue;
    }
    before_operands = before_operands && text != "--";
    words.push_back(*word);
  }
  const int count = static_cast<int>(words.size());
  words.push_back(nullptr);
  letters.next = parse(count, words.data(), options, quiet).next;
  return letters;
}

int print_usage(const char* program, const char* argv0, Next next) {
  const Help& help = *std::find_if(std::begin(kHelps), std::end(kHelps),
                                   [program](const Help& each) { return each.program == program; });
  const bool named = help.usage[0] == '\t';
  if (named) std::printf("usage: %s\n", argv0);
  std::printf("%s%s", help.usage, named ? "\t[--json]\n" : "");
  if (next != Next::kStop) return help.wrong_usage;
  std::printf("\nOptions:\n%s", help.options);
  std::printf("  --json               print one JSON object at the end, and nothing else\n");
  std::printf("  --help               print this and exit\n");
  std::printf("\nExamples:\n%s", help.examples);
  std::printf("\nExit status: %s; %d wrong usage; else another number, after a sentence that says why.\n",
              help.done, help.wrong_usage);
  return 0;
}

}  // namespace verbena::rdma_core
