// SPDX-License-Identifier: Apache-2.0
// A key-value store in the server's memory. PUT is a message that the server answers. GET is a READ of the
// client, in which the server's processor takes no part.
//
//   verbena run kv serve [::]:7471             # in one shell
//   verbena run kv put HOST:7471 KEY VALUE     # in another shell
//   verbena run kv get HOST:7471 KEY
//   verbena run kv stress HOST:7471            # PUTs while it GETs, and counts torn READs
//
// The client repeats a READ that saw half of a change. Leaves out: removal of keys, tables that grow, hosts
// of different byte orders, and a checksum that resists forgery.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <verbena/async/join.hpp>
#include <verbena/cm.hpp>

#include "kv_table.hpp"

namespace {

using namespace verbena;
using namespace example;

task<> serve(connection client, shared<table>& all) {
  co_await client.send_value(all.remote());
  while (const buffer message = co_await client.receive()) {
    if (message.size() != sizeof(entry)) co_return;
    const int code = put(*all, *reinterpret_cast<const entry*>(message.data()));
    static_cast<void>(client.send_value(code));  // ends without being awaited
  }
}

task<> run_server(loop& io, std::string where) {
  listener door(io, where);
  std::printf("serving at port %u\n", door.port());
  std::fflush(stdout);
  // Any connection can make the table: all connections of a loop share a protection domain.
  std::optional<shared<table>> all;
  for (;;) {
    connection client = co_await door.accept();
    if (!all) all = client.share<table>();
    io.spawn(serve(std::move(client), *all));
  }
}

// ---- the client

struct store {
  connection server;
  remote<table> all;
  std::uint64_t torn = 0;  // READs that saw half of a change
};
task<store> open_store(loop& io, std::string where) {
  connection server = co_await connect(io, where);
  const auto all = co_await server.receive_value<remote<table>>();
  co_return store{std::move(server), all};
}
task<> put(store& in, std::string key, std::string value) {
  co_await in.server.send_value(entry{text<60>(key), text<180>(value)});
  const int code = co_await in.server.receive_value<int>();
  if (code != 0) throw std::system_error(code, std::generic_category(), "put " + key);
}
task<std::string> get(store& from, std::string key) {
  for (std::size_t probe = 0; probe < kProbes;) {
    const lease<entry> found = co_await from.server.read(from.all[place_of(key, probe)]);
    if (!found->is_whole()) {
      ++from.torn;
    } else if (found->key.size == 0) {
      break;
    } else if (found->key.view() == key) {
      co_return std::string(found->value.view());
    } else {
      ++probe;
    }
  }
  throw std::runtime_error("the store has no key '" + key + "'");
}

task<> stress(store& own) {
  constexpr int kRounds = 2000;
  co_await put(own, "stress", "");
  for (int round = 0; round < kRounds; ++round) {
    auto changing = put(own, "stress", std::string(180, static_cast<char>('a' + round % 26)));
    auto [unused, value] = co_await when_all(std::move(changing), get(own, "stress"));
    if (value.find_first_not_of(value.substr(0, 1)) != std::string::npos)
      throw std::runtime_error("a torn value: " + value);
  }
  std::printf("%d values, %llu torn READs repeated\n", kRounds, static_cast<unsigned long long>(own.torn));
}

task<> run_client(loop& io, char** argv) {
  const std::string_view verb = argv[1];
  store own = co_await open_store(io, argv[2]);
  if (verb == "put") co_await put(own, argv[3], argv[4]);
  if (verb == "get") std::printf("%s\n", (co_await get(own, argv[3])).c_str());
  if (verb == "stress") co_await stress(own);
  co_await own.server.close();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc > 2 ? argv[1] : "";
  const int wanted = verb == "put" ? 5 : verb == "get" ? 4 : verb == "serve" || verb == "stress" ? 3 : 0;
  if (argc != wanted) {
    std::fputs("usage: kv serve|stress ADDRESS | put ADDRESS KEY VALUE | get ADDRESS KEY\n", stderr);
    return 1;
  }
  try {
    loop io;
    io.run(verb == "serve" ? run_server(io, argv[2]) : run_client(io, argv));
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "kv: %s\n", failed.what());
    return 1;
  }
}
