#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes mistakes on purpose: each must give a line that names the object, the reason and the next step.

    run_mistakes.py --build build/release [--group verbs]

Checks the log (VERBENA_LOG=error) of programs (tests/conformance/mistakes/), and the output of commands.
"""

import re
import shlex
import tempfile

import harness

SECONDS = 10
LOG = {"VERBENA_LOG": "error"}
QP = r"QP 0x[0-9a-f]{6}"
ID = r"rdma_cm_id 0x[0-9a-f]+"

# Mistakes of programs, each with its line in the log.
VERBS = {
    "write_to_read_only_region": rf"{QP} at 10\.9\.0\.1 is refused: key 0x\w+ was registered without IBV_ACCESS_REMOTE_WRITE",
    "write_without_qp_access": r"qp_access_flags do not have IBV_ACCESS_REMOTE_WRITE",
    "atomic_without_access": r"key 0x\w+ was registered without IBV_ACCESS_REMOTE_ATOMIC",
    "atomic_at_odd_address": r"the address 0x\w+ is not a multiple of eight",
    "write_behind_region": r"\[0x\w+, 0x\w+\) is not within \[0x\w+, 0x\w+\), which key 0x\w+ is for",
    "write_with_wrong_rkey": r"no region or memory window has key 0x12345678: it was deregistered, or never registered",
    "lkey_of_other_pd": rf"{QP}: SEND of 64 bytes failed.*local key 0x\w+ is of another protection domain",
    "sge_outside_region": r"SEND of 4097 bytes failed.*is not within \[0x\w+, 0x\w+\), which the local key 0x\w+ is for",
    "deregistered_region": r"no region has the local key 0x\w+: it was deregistered",
    "read_into_read_only_region": r"the local key 0x\w+ was registered without IBV_ACCESS_LOCAL_WRITE",
    "inline_too_long": rf"ibv_post_send\(\) failed, EINVAL .*{QP} of rxe_eth0 port 1: 4000 bytes inline, max_inline_data is 32",
    "full_send_queue": rf"{QP} .*: the queue is full: it has room for 4 requests \(max_send_wr\).*have been polled",
    "full_receive_queue": rf"ibv_post_recv.*{QP} .*room for 4 requests \(max_recv_wr\)",
    "unknown_opcode": rf"{QP} .*: opcode 77 is none of enum ibv_wr_opcode",
    "post_to_destroyed_qp": r"ibv_modify_qp.*ibv_qp 0x\w+ was destroyed, never existed",
    "destroy_cq_in_use": rf"ibv_destroy_cq.*EBUSY.*: ibv_cq 0x\w+: {QP} use it: destroy what uses it first",
    "dealloc_pd_in_use": rf"ibv_dealloc_pd.*EBUSY.*: ibv_pd 0x\w+: MR with lkey 0x\w+, {QP} use it: destroy",
    "destroy_srq_in_use": rf"ibv_destroy_srq.*EBUSY.*: ibv_srq 0x\w+: {QP} use it: destroy",
    "dereg_twice": r"ibv_dereg_mr.*ibv_mr 0x\w+ was destroyed",
    "gid_index_200": rf"{QP} .*: there is no GID of index 200 \('verbena status -v' lists them\)",
    "no_global_route": r"is_global is 0, and RoCE addresses by GIDs only: set grh\.dgid .*-x or -g INDEX",
    "link_local_to_routed": r"grh\.dgid 10\.9\.0\.1 and the GID of sgid_index 0, fe80::\S+, are not both IPv4 .*: take another index",
    "port_2": r"port_num is 2, and the device has port 1 only",
    "query_port_2": r"there is no port 2",
    "mask_lacks_dest_qpn": rf"{QP} .*: INIT to RTR wants IBV_QP_RQ_PSN, IBV_QP_DEST_QPN in the mask",
    "reset_to_rts": rf"{QP} .*does not go from RESET to RTS; from RESET it goes to INIT$",
    "mtu_1500": r"path_mtu is 1500, and has to be of enum ibv_mtu: IBV_MTU_256 \(1\) to IBV_MTU_4096 \(5\)",
    "max_rd_atomic_255": r"max_dest_rd_atomic 255 exceeds 128 \(max_qp_rd_atom\)",
    "qpn_of_32_bits": r"dest_qp_num 305419896 exceeds 16777215",
    "psn_mismatch": rf"transport retry counter exceeded \(12\): {QP} at 10\.9\.0\.1 has not answered 2 tries.*its rq_psn is not our sq_psn",
    "wrong_qkey": rf"{QP}: a message of {QP} at 10\.9\.0\.1 is dropped.*its Q_Key is 0x2222, and this queue pair's 0x1111",
    "datagram_without_room_for_grh": rf"{QP}: .*is dropped.*it has 64 bytes behind 40 of the GRH, and the receive request has room for 64",
    "datagram_over_mtu": r"SEND of 4000 bytes failed, local length error.*one packet, of at most 1024 bytes",
    "datagram_without_ah": rf"{QP} .*: wr\.ud\.ah is null",
    "unreliable_write_with_wrong_rkey": rf"{QP}: a message of {QP} at 10\.9\.0\.1 is dropped, as UC wants.*has key 0x12345678",
    "attach_unicast_gid": rf"ibv_attach_mcast.*{QP} .*: gid 10\.9\.0\.1 is not that of a multicast group: 224",
    "attach_rc": r"multicast is for queue pairs of IBV_QPT_UD, not RC",
    "remote_write_without_local_write": r"ibv_reg_mr.*remote writes and atomics want IBV_ACCESS_LOCAL_WRITE",
    "unmapped_memory": r"ibv_reg_mr.*EFAULT.*8192 bytes at 0x\w+ are not all mapped for writing",
    "cq_of_0": r"ibv_create_cq.*cqe 0 is less than 1",
    "comp_vector_99": r"comp_vector 99 is not below num_comp_vectors \d",
    "qp_without_cq": r"ibv_create_qp.*send_cq is null",
    "unknown_qp_type": r"there is no queue pair of qp_type 99",
    "null_pd": r"ibv_reg_mr.*ibv_pd is null",
    "ah_of_port_0": r"ibv_create_ah.*port_num is 0, the device has port 1",
    "srq_limit_too_high": r"srq_limit is 1000, the queue has room for 16",
    "receive_in_reset": rf"{QP} .*: it is in RESET; ibv_post_recv needs INIT, RTR or RTS",
    "nobody_receives": rf"RNR retries exhausted \(rnr_retry 0\): peer {QP} at 10\.9\.0\.1 had no receive posted; post receives",
    "receive_too_short": rf"{QP}: the receive request .*message of 100 bytes, receive buffer of 8",
    "too_many_requests": r"ibv_create_qp.*cap\.max_send_wr 99999999 exceeds max_qp_wr \d+",
    "too_many_pieces": rf"ibv_post_send.*{QP} of rxe_eth0 port 1: num_sge 9 is not within 0 to max_send_sge \d",
    "send_in_init": rf"{QP} .*: it is in INIT; ibv_post_send needs RTS",
    "receive_beside_srq": rf"{QP} .*: it uses an SRQ: use ibv_post_srq_recv\(\)",
    "write_on_ud": r"IBV_WR_RDMA_WRITE is not supported on UD",
    "unacknowledged_cq_event": r"ibv_destroy_cq\(\) of 0x\w+ waits until the program acknowledges 1 more event .*: call ibv_ack_cq_events\(\)",
}

CONNECTIONS = {
    "nobody_listens_for_datagrams": r"RDMA_CM_EVENT_UNREACHABLE for 10\.9\.0\.1 port 7999, status 1: nobody listens.*start the server",
    "bind_to_foreign_address": rf"rdma_bind_addr.*{ID}: 192\.0\.2\.77 is no address of this host \('ip address'",
    "bind_to_unix_address": rf"{ID}: addr is of family 1, and only AF_INET \(2\) and AF_INET6",
    "bind_twice": rf"{ID} \(10\.9\.0\.1 port 7500\): it is in state ADDR_BOUND: .*bound once",
    "port_in_use": rf"{ID}: port 7500 is taken by another rdma_cm_id.*take another, or 0",
    "route_before_address": rf"rdma_resolve_route.*{ID}: it is in state IDLE: .*first rdma_resolve_addr\(\)",
    "connect_before_route": rf"rdma_connect.*{ID} \(10.*\): it is in state ADDR_RESOLVED: .*first rdma_resolve_route\(\)",
    "connect_before_address": rf"rdma_connect.*{ID}: id has no device: rdma_resolve_addr\(\)",
    "qp_before_address": rf"rdma_create_qp.*{ID}: id has no device: rdma_resolve_addr\(\)",
    "resolve_twice": rf"rdma_resolve_addr.*{ID} .*ROUTE_RESOLVED: .*create another for another peer",
    "private_data_too_long": rf"rdma_connect.*{ID} .*: private data of 200 bytes, and this message has room for 56",
    "accept_data_too_long": rf"rdma_accept.*{ID} .*: private data of 255 bytes exceeds .* 224",
    "accept_twice": rf"rdma_accept.*{ID} .*CONNECT: accepted; accept the id of an RDMA_CM_EVENT_CONNECT_REQUEST",
    "accept_a_listener": rf"rdma_accept.*{ID} .*state LISTEN; accept the id of",
    "too_many_responder_resources": rf"{ID} .*: responder_resources 200 exceeds the device's max_qp_rd_atom 128",
    "unknown_port_space": r"rdma_create_id.*there is no port space 0x999: take RDMA_PS_TCP",
    "datagrams_on_tcp": rf"rdma_create_qp.*{ID} .*: qp_type 4 does not go with id, which is for 2: RDMA_PS_TCP is for RC",
    "destroyed_identifier": rf"rdma_bind_addr.*{ID} was destroyed",
    "destroyed_channel": r"rdma_create_id.*event channel 0x\w+ was destroyed",
    "event_not_acknowledged": rf"rdma_destroy_id\(\) of {ID} waits until the program acknowledges 1 more event .*: call rdma_ack_cm_event",
    "disconnect_unconnected": rf"rdma_disconnect.*{ID}: id has no device",
    "join_unicast_address": rf"rdma_join_multicast.*{ID} .*: 10\.9\.0\.2 is no multicast group",
    "join_before_bind": rf"{ID}: it is in state IDLE: .*first rdma_bind_addr\(\)",
    "leave_group_not_joined": rf"{ID} .*: id has not joined 239\.1\.2\.3 port 0",
    "unknown_option": rf"{ID}: there is no option 77 of RDMA_OPTION_ID",
    "reject_nothing": rf"rdma_reject\(\) failed.*{ID}: .*reject the id of an RDMA_CM_EVENT_CONNECT_REQUEST",
    "second_qp": rf"{ID} .*: id has a queue pair already",
    "connect_without_qp": rf"{ID} .*: conn_param is null, and id has no queue pair: rdma_create_qp\(\)",
    "unknown_host": r"rdma_getaddrinfo\(\) failed, .*no\.such\.host\.invalid",
    "ep_to_nobody": r"rdma_connect.*10\.9\.0\.1 port 7999.*nobody listens",
    "listen_twice": rf"rdma_listen.*{ID} .*LISTEN; listen with an identifier that is new or bound",
}

# Commands, each with its exit status and line. They run in a shell, with `verbena` in PATH and in an empty folder.
COMMANDS = {
    "verbena statos": (2, r"unknown command 'statos'; did you mean 'status'"),
    "verbena status --verbos": (2, r"unknown option '--verbos'; did you mean '--verbose'"),
    "verbena status --json=5": (2, r"--json takes no value"),
    "verbena status --pid": (2, r"--pid needs a value"),
    "verbena status --pid 999999": (1, r"process 999999 does not use Verbena; 'verbena status' lists"),
    "verbena status --qp 0x999": (1, r"no queue pair 0x999; 'verbena status -v' lists"),
    "verbena status --link nosuch": (1, r"no link 'nosuch'; links: .*rxe_eth0"),
    "verbena link shwo": (2, r"unknown command 'shwo' of 'verbena link'; did you mean 'show'"),
    "verbena link add rxe0 eth9": (1, r"there is no netdev 'eth9'; 'ip link' lists"),
    "verbena link add rxe_eth0 eth0": (1, r"there is a link 'rxe_eth0' already: .*verbena link del rxe_eth0"),
    "verbena link add %0100d eth0": (1, r"'0+\.\.\.' has 100 characters, and a link's name at most 63"),
    "verbena link del nosuch": (1, r"there is no link 'nosuch'; 'verbena link show' lists"),
    "verbena link set rxe_eth0 color red": (2, r"'color' cannot be set, only 'peers'"),
    "verbena link set rxe_eth0 peers 10.0.0.0/99": (2, r"'10\.0\.0\.0/99' is no address and no network; it is 'verbena"),
    "verbena capture .": (1, r"cannot write '\.': it is a directory; name a file"),
    "verbena capture nosuch/file": (1, r"cannot write 'nosuch/file': its directory does not exist"),
    "verbena capture --seconds 1 /dev/full": (1, r"cannot write '/dev/full': No space left on device"),
    "verbena capture --pid 999999 --seconds 1 x": (0, r"--pid: there is no process 999999 here; 'verbena status' lists"),
    "verbena capture --seconds abc x": (2, r"--seconds: 'abc' is not a number of seconds from 1 to 86400"),
    "verbena trace 999999": (1, r"no trace of a process 999999 .*'verbena trace' lists"),
    "verbena explain flurb": (1, r"'flurb' is not known; 'verbena explain' lists"),
    "verbena doctor nosuchhost": (2, r"'nosuchhost' is neither a program .* nor a host.*; give a path"),
    "verbena doctor .": (2, r"'\.' is a directory: name a program"),
    "echo x > text; verbena doctor ./text": (2, r"'\./text' is neither a program, nor a script, nor a shared library"),
    "verbena top --interval 0": (2, r"--interval: '0' is not a number of seconds from 0\.1 to 60"),
    "verbena top --batch --interval 0.1 > /dev/full": (1, r"cannot write the table to standard output: No space"),
    "verbena help > /dev/full": (1, r"cannot write the answer to standard output: No space"),
    "verbena status --json > /dev/full": (1, r"cannot write the answer to standard output: No space"),
    "verbena rdma link > /dev/full": (1, r"rdma: cannot write to standard output: No space"),
    "verbena run nosuchprogram": (127, r"no program 'nosuchprogram' in PATH; .*such as \./nosuchprogram"),
    "verbena run ./": (126, r"cannot run '\./': it is a directory"),
    "cp /bin/true nox; chmod 644 nox; verbena run ./nox": (126, r"cannot run '\./nox': it is not executable; .*'chmod \+x \./nox'"),
    "echo '#!/no/such/program' > script; chmod 755 script; verbena run ./script": (126, r"it needs '/no/such/program', which is not there"),
    "verbena doctor ./script": (1, r"\./script is a script for /no/such/program, which is not there"),
    "verbena metrics --listen 192.0.2.77:9": (1, r"cannot listen at '192\.0\.2\.77:9': .*no network device has this address"),
    "verbena metrics --listen unix:nosuch/x": (1, r"cannot listen at 'unix:nosuch/x': .*make the directory first"),
    "verbena agent": (1, r"another agent of this user \(pid \d+\) runs .* already; .*kill \d+"),
    "verbena ibv_devinfo -d nosuch": (255, r"IB device 'nosuch' wasn't found \('verbena link show' lists"),
}

AGENT = {
    "verbena-agent --foregruond": (2, r"verbena-agent: unknown option '--foregruond'; did you mean '--foreground'"),
    "verbena-agent --idle-timeout": (2, r"verbena-agent: --idle-timeout needs a value"),
    "verbena-agent --idle-timeout soon": (2, r"--idle-timeout: 'soon' is not a number of seconds from 0 to 1000000"),
    "verbena-agent --idle-timeout -1": (2, r"--idle-timeout: '-1' is not a number of seconds"),
    "verbena-agent extra": (2, r"verbena-agent: unexpected argument 'extra'"),
    "verbena-agent --foreground=7": (2, r"--foreground takes no value"),
    "verbena-agent --serve-only nosuchuser": (1, r"--serve-only: there is no user 'nosuchuser'; .*'getent passwd'"),
    "verbena-agent --serve-only=": (2, r"--serve-only"),
    "setpriv --reuid=65534 --clear-groups verbena-agent -f --serve-only root": (1, r"--serve-only is for root's agent.*leave it out"),
    "setpriv --reuid=65534 --clear-groups verbena link del rxe_eth0": (1, r"only root may change root's links"),
    "setpriv --reuid=65534 --clear-groups verbena capture --seconds 1 /dev/null": (1, r"only root may capture what root's agent serves"),
}

ENVIRONMENT = {
    "VERBENA_LOG=verbose verbena doctor": (0, r"VERBENA_LOG=verbose is not one of none, error"),
    "VERBENA_LOGS=debug verbena doctor": (1, r"VERBENA_LOGS is no variable of Verbena's; did you mean VERBENA_LOG"),
    "VERBENA_LOCAL=maybe verbena run true": (0, r"VERBENA_LOCAL=maybe has no effect: it has to be 'off'"),
    "VERBENA_AGENT=/nosuch verbena doctor": (1, r"VERBENA_AGENT=/nosuch is not an executable file"),
    "verbena run /sbin/ldconfig -V": (0, r"'/sbin/ldconfig' is linked statically, so Verbena's libraries cannot reach it"),
    "ulimit -n 12; verbena doctor": (1, r"12 descriptors open \(ulimit -n\).*\n +-> the hard limit is 12: raise"),
    "ulimit -v 60000; verbena doctor": (1, r"58 MiB of address space \(ulimit -v\).*\n +-> the hard limit is finite"),
    "set -o pipefail; (ulimit -f 0; verbena doctor) | cat": (1, r"files may have 0 bytes \(ulimit -f\)"),
    "setpriv --reuid=65534 --clear-groups prlimit --nproc=1 verbena run ibv_devinfo":
        (1, r"ibv_open_device\(\) failed, EAGAIN .*no thread can be started: the user's limit \(ulimit -u\)"),
    "ip link set eth0 mtu 500; verbena doctor; ip link set eth0 mtu 1500":
        (0, r"eth0 carries 500 bytes, so that the path MTU is 256: .*\n +-> raise it: ip link set eth0 mtu 1500"),
    "ip addr del 10.9.0.1/24 dev eth0; ip addr flush scope global dev eth0; verbena doctor; ip addr add 10.9.0.1/24 dev eth0":
        (0, r"rxe_eth0 has a link-local address only.*\n +-> give eth0 an address"),
}

# Commands that run without an agent.
ALONE = {
    "VERBENA_AGENT=/nosuch verbena run ibv_devices":
        (1, r"ibv_get_device_list\(\) failed, ECONNREFUSED .*no agent runs, and /nosuch cannot be started: No such file"),
    "VERBENA_AGENT=/bin/false verbena run ibv_devices":
        (1, r"ibv_get_device_list\(\) failed.*/bin/false was started and has ended without serving"),
    "ulimit -n 12; verbena run ibv_devinfo -l":
        (255, r"verbena-agent: cannot start: at most 12 descriptors may be open \(ulimit -Hn\).*: start verbena-agent beforehand"),
    "ip link set eth0 down; verbena run rping -s -a 10.9.0.1 -C 1":
        (255, r"rdma_bind_addr.*: no RDMA link has 10\.9\.0\.1: is its network device up"),
    "verbena doctor": (1, r"eth0 has an address and is switched off, so it has no link\n +-> switch it on: ip link set eth0 up"),
    "ip link set eth0 up mtu 200; verbena doctor": (1, r"eth0 carries 200 bytes, and the smallest path MTU needs 336"),
}


def shell(host, folder, command):
    """Runs a shell command: (status, output)."""
    search = f"{host.hosts.build.program.parent}:{host.hosts.build.folder / 'bin'}"
    script = f"cd {shlex.quote(folder)}; export PATH={search}:$PATH; {command.replace('%0100d', '0' * 100)}"
    process = host.start(["bash", "-c", script], user=[], environment=LOG)
    return host.finish(process, SECONDS)


def check_commands(judge, host, folder, rows):
    for command, (status, pattern) in rows.items():
        found, output = shell(host, folder, command)
        good = found == status and re.search(pattern, output)
        judge.say(command[:70], None if good else f"status {found}, wanted {status} and {pattern}\n{output}")


def check_programs(judge, host, rows):
    program = [host.hosts.build.folder / "tests" / "mistakes", "rxe_eth0", host.gid_index(host.ipv4, "rxe_eth0", user=[]), host.ipv4]
    for name, pattern in rows.items():
        # Some programs wait endlessly after the message.
        process = host.verbena("run", *program, name, user=[], environment=LOG)
        line = re.compile(rf"^verbena\[\d+\] error: .*{pattern}", re.MULTILINE)
        good = harness.poll_until(lambda p=process, l=line: l.search(p.output) or not p.running(), SECONDS) and line.search(process.output)
        judge.say(name, None if good else f"wanted {pattern}\n{process.output}")
        process.kill()


def main():
    groups = {
        "verbs": lambda judge, host, _: check_programs(judge, host, VERBS),
        "connections": lambda judge, host, _: check_programs(judge, host, CONNECTIONS),
        "commands": lambda judge, host, folder: check_commands(judge, host, folder, COMMANDS),
        "agent": lambda judge, host, folder: check_commands(judge, host, folder, AGENT),
        "environment": lambda judge, host, folder: check_commands(judge, host, folder, ENVIRONMENT),
        "alone": lambda judge, host, folder: (host.end_agents(), check_commands(judge, host, folder, ALONE)),
    }
    parser = harness.parser(__doc__)
    parser.add_argument("--group", action="append", choices=groups, help="run only this group (default: all)")
    options = harness.begin(parser, "ip", "setpriv", "ibv_devices", "ibv_devinfo", "rping")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts, tempfile.TemporaryDirectory(prefix="verbena-mistakes-") as folder:
        host, _ = hosts.two()
        host.start_agent()
        for name, check in groups.items():
            if not options.group or name in options.group:
                check(judge, host, folder)
    judge.exit()


if __name__ == "__main__":
    main()
