# SPDX-License-Identifier: Apache-2.0
"""Tests the preload with programs that do not know about it.

facade_test.py LIBRARY PROBE VERSION_SCRIPT [SUITE...]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LIBRARY, PROBE, VERSION_SCRIPT = map(os.path.abspath, sys.argv[1:4])
CLASS = "/sys/class/infiniband"
DEVICE = CLASS + "/rxe_test0"
LINKED = CLASS + "/rxe_test1"
NODE = "/dev/infiniband/rxe_test0"
TYPE = DEVICE + "/ports/1/gid_attrs/types/0"
HARDWARE = os.path.exists(CLASS) or os.path.exists("/dev/infiniband")


def make_tree(home):
    """Makes the files of an agent: one device, with a symbolic link inside as in sysfs."""
    def write(path, text):
        os.makedirs(os.path.dirname(home + path), exist_ok=True)
        with open(home + path, "w") as file:
            file.write(text)

    write(TYPE, "RoCE v2\n")
    write(DEVICE + "/ports/1/gid_attrs/ndevs/0", "test0\n")
    write(DEVICE + "/node_guid", "0200:00ff:fe00:0001\n")
    os.makedirs(home + DEVICE + "/device/net/test0")
    os.symlink("ports/1", home + DEVICE + "/first_port")
    write("/sys/class/infiniband_verbs/abi_version", "6\n")
    write("/sys/class/infiniband_verbs/uverbs_test0/ibdev", "rxe_test0\n")
    write("/sys/class/infiniband_mad/abi_version", "5\n")
    write("/sys/class/infiniband_cm/abi_version", "4\n")
    write("/sys/devices/virtual/misc/rdma_cm/abi_version", "4\n")
    os.makedirs(home + "/sys/class/misc")
    os.symlink("../../devices/virtual/misc/rdma_cm", home + "/sys/class/misc/rdma_cm")
    os.makedirs(home + "/dev/infiniband")
    os.symlink("/dev/null", home + NODE)


class Facade(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="verbena-facade-")
        self.addCleanup(shutil.rmtree, self.home)
        make_tree(self.home)

    def run_program(self, *command, home=None, preload=LIBRARY, **options):
        environment = dict(os.environ, VERBENA_SYS_DIR=self.home if home is None else home, LC_ALL="C")
        environment.pop("LD_PRELOAD", None)
        if preload:
            environment["LD_PRELOAD"] = preload
        if home is False:
            del environment["VERBENA_SYS_DIR"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, **options)

    def output_of(self, *command, **options):
        result = self.run_program(*command, **options)
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.returncode, 0)
        return result.stdout.rstrip("\n")

    def probe(self, *arguments, **options):
        result = self.run_program(PROBE, *arguments, **options)
        self.assertEqual(result.stderr, "", arguments)
        return result.stdout.rstrip()


class Programs(Facade):
    def test_cat(self):
        self.assertEqual(self.output_of("cat", TYPE), "RoCE v2")

    def test_ls(self):
        self.assertIn("rxe_test0", self.output_of("ls", CLASS).split())
        self.assertEqual(self.output_of("ls", DEVICE).split(), ["device", "first_port", "node_guid", "ports"])

    def test_ls_long(self):
        self.assertRegex(self.output_of("ls", "-l", DEVICE), r"\n-rw.* node_guid\n")
        self.assertRegex(self.output_of("ls", "-lL", "/dev/infiniband/rxe_test0"), r"^c")

    def test_stat(self):
        self.assertEqual(self.output_of("stat", "-L", "-c", "%F", NODE), "character special file")
        self.assertEqual(self.output_of("stat", "-c", "%F", DEVICE), "directory")

    def test_find(self):
        found = self.output_of("find", DEVICE, "-name", "0").split()
        self.assertEqual(sorted(found), [DEVICE + "/ports/1/gid_attrs/ndevs/0", TYPE])

    def test_devices_are_links_to_where_they_lie(self):
        place = "/sys/devices/infiniband.verbena/rxe_test1"
        os.makedirs(f"{self.home}{place}/infiniband/rxe_test1")
        with open(f"{self.home}{place}/vendor", "w") as file:
            file.write("0xffffff\n")
        os.symlink("../../../rxe_test1", f"{self.home}{place}/infiniband/rxe_test1/device")
        os.symlink("../../devices/infiniband.verbena/rxe_test1/infiniband/rxe_test1", self.home + LINKED)
        self.assertEqual(self.output_of("readlink", LINKED), "../../devices/infiniband.verbena/rxe_test1/infiniband/rxe_test1")
        self.assertEqual(self.output_of("readlink", "-f", LINKED), f"{place}/infiniband/rxe_test1")
        self.assertEqual(self.output_of("realpath", LINKED + "/device"), place)
        self.assertEqual(self.output_of("cat", f"{place}/vendor", LINKED + "/device/vendor").split(), ["0xffffff"] * 2)
        self.assertEqual(self.output_of("sh", "-c", f"cd -P {LINKED}/device && cat vendor"), "0xffffff")

    def test_the_connection_managers_version(self):
        self.assertEqual(self.output_of("cat", "/sys/class/misc/rdma_cm/abi_version"), "4")
        self.assertEqual(self.output_of("realpath", "/sys/class/misc/rdma_cm"), "/sys/devices/virtual/misc/rdma_cm")

    def test_folders_above_list_what_is_shown(self):
        shown = ["infiniband", "infiniband_cm", "infiniband_mad", "infiniband_verbs"]
        for command in (("ls", "/sys/class"), ("ls", "/sys/class//"), ("bash", "-c", "cd /sys/class; echo *"), ("sh", "-c", "cd /sys/class; ls"),
                        (sys.executable, "-c", "import os; print(*os.listdir('/sys/class'))")):
            found = self.output_of(*command).split()
            plain = self.output_of("ls", "/sys/class", preload=None).split()
            self.assertEqual(sorted(found), sorted({*plain, *shown}), command)
        self.assertIn("rdma_cm", self.output_of("ls", "/sys/class/misc").split())
        self.assertIn("infiniband", self.output_of("ls", "/dev").split())
        self.assertEqual(self.output_of("bash", "-c", "echo /sys/class/infiniband_v*"), "/sys/class/infiniband_verbs")
        self.assertEqual(self.probe("glob", "/sys/class/infini*_verbs"), "ok /sys/class/infiniband_verbs")
        self.assertRegex(self.probe("scandir", "/sys/class"), "infiniband_mad")

    def test_readlink(self):
        self.assertEqual(self.output_of("readlink", "-f", DEVICE + "/first_port/gid_attrs"),
                         DEVICE + "/ports/1/gid_attrs")
        self.assertEqual(self.output_of("readlink", NODE), "/dev/null")

    def test_realpath(self):
        self.assertEqual(self.output_of("realpath", DEVICE + "/first_port"), DEVICE + "/ports/1")

    def test_grep_recursive(self):
        self.assertEqual(self.output_of("grep", "-r", "RoCE", DEVICE), TYPE + ":RoCE v2")

    def test_shell(self):
        script = f"test -d {DEVICE} && test -c {NODE} && test -r {NODE} && test -w {NODE} && " \
                 f"read type < {TYPE} && echo $type; for device in {CLASS}/rxe_test*; do echo $device; done"
        for shell in ("sh", "bash"):
            self.assertEqual(self.output_of(shell, "-c", script), "RoCE v2\n" + DEVICE)

    def test_shell_changes_into_it(self):
        self.assertEqual(self.output_of("sh", "-c", f"cd {DEVICE}/ports/1 && cat gid_attrs/types/0"), "RoCE v2")
        self.assertEqual(self.output_of("sh", "-c", "cd /sys/class && cat infiniband/rxe_test0/node_guid"),
                         "0200:00ff:fe00:0001")
        for change in ("cd", "cd -P"):
            self.assertEqual(self.output_of("sh", "-c", f"{change} {DEVICE}/ports; ls ../../../net"),
                             self.output_of("ls", "/sys/class/net"))

    def test_programs_started_by_programs(self):
        self.assertEqual(self.output_of("sh", "-c", f"exec sh -c 'cat {TYPE} | cat'"), "RoCE v2")

    def test_python(self):
        script = f"""
import glob, os, pathlib
assert 'rxe_test0' in os.listdir('{CLASS}')
assert [e.name for e in os.scandir('{DEVICE}/ports')] == ['1']
assert os.path.realpath('{DEVICE}/first_port') == '{DEVICE}/ports/1'
assert os.path.exists('{NODE}') and os.access('{NODE}', os.R_OK | os.W_OK)
assert open('{TYPE}').read() == 'RoCE v2\\n'
assert glob.glob('{CLASS}/*/ports/*/gid_attrs/types/0') == ['{TYPE}']
assert pathlib.Path('{DEVICE}').resolve() == pathlib.Path('{DEVICE}')
assert sum(len(files) for _, _, files in os.walk('{DEVICE}')) == 3
at = os.open('{DEVICE}', os.O_RDONLY)
assert os.listdir(at) and os.open('node_guid', os.O_RDONLY, dir_fd=at) > 0
"""
        self.output_of(sys.executable, "-c", script)

    def test_perl(self):
        if not shutil.which("perl"):
            self.skipTest("no perl")
        self.assertEqual(self.output_of("perl", "-e", f"print -c '{NODE}' ? 1 : 0, join ',', <{CLASS}/rxe_*>"),
                         "1" + DEVICE)


class Functions(Facade):
    def test_status(self):
        for name in ("stat", "stat64", "fstatat", "fstatat64", "xstat", "xstat64", "fxstatat", "fxstatat64"):
            with self.subTest(name):
                self.assertEqual(self.probe(name, NODE), "ok character")
                self.assertEqual(self.probe(name, DEVICE), "ok directory")
                self.assertEqual(self.probe(name, TYPE), "ok file")
                self.assertEqual(self.probe(name, CLASS + "/missing"), "ENOENT")
        for name in ("lstat", "lstat64", "lxstat", "lxstat64", "fstatat_nofollow"):
            with self.subTest(name):
                self.assertEqual(self.probe(name, NODE), "ok link")

    def test_questions(self):
        for name in ("statx", "access", "access_write", "eaccess", "euidaccess", "faccessat", "statfs", "statfs64",
                     "statvfs", "statvfs64", "listxattr", "llistxattr", "inotify_add_watch"):
            with self.subTest(name):
                self.assertEqual(self.probe(name, NODE), "ok")
                self.assertEqual(self.probe(name, NODE + "9"), "ENOENT")
        for name in ("getxattr", "lgetxattr"):
            self.assertIn(self.probe(name, TYPE), ("ENODATA", "EOPNOTSUPP"))

    def test_opening(self):
        for name in ("open", "open64", "openat", "openat64", "open_checked", "open64_checked", "openat_checked",
                     "openat64_checked", "fopen", "fopen64", "freopen", "freopen64"):
            with self.subTest(name):
                self.assertEqual(self.probe(name, TYPE), "ok RoCE v2")
                self.assertEqual(self.probe(name, TYPE + "9"), "ENOENT")
        for name in ("creat", "creat64"):
            self.assertEqual(self.probe(name, NODE), "ok")

    def test_links(self):
        for name in ("readlink", "readlinkat", "readlink_checked"):
            self.assertEqual(self.probe(name, NODE), "ok /dev/null")
            self.assertEqual(self.probe(name, DEVICE), "EINVAL")

    def test_simplifying(self):
        for name in ("realpath", "realpath_into", "realpath_checked", "canonicalize"):
            with self.subTest(name):
                self.assertEqual(self.probe(name, CLASS), "ok " + CLASS)
                self.assertEqual(self.probe(name, DEVICE + "/first_port/../1"), f"ok {DEVICE}/ports/1")
                self.assertEqual(self.probe(name, NODE), "ok /dev/null")
                self.assertEqual(self.probe(name, DEVICE + "/missing"), "ENOENT")

    def test_simplifying_when_the_directory_is_reached_by_a_link(self):
        link = self.home + "-link"
        os.symlink(self.home, link)
        self.addCleanup(os.unlink, link)
        self.assertEqual(self.probe("realpath", DEVICE + "/first_port", home=link), f"ok {DEVICE}/ports/1")

    def test_listing(self):
        for name in ("opendir", "fdopendir", "rewinddir", "readdir_r", "scandir", "scandir64", "many"):
            with self.subTest(name):
                self.assertEqual(self.probe(name, DEVICE), "ok device first_port node_guid ports")
                self.assertIn("rxe_test0", self.probe(name, CLASS).split())
        self.assertEqual(self.probe("scandirat", "/sys/class", "infiniband/rxe_test0/ports"), "ok 1")
        self.assertEqual(self.probe("opendir", DEVICE + "9"), "ENOENT")

    def test_glob(self):
        self.assertEqual(self.probe("glob", CLASS + "/rxe_*/ports/[0-9]/gid_attrs/*/0"),
                         f"ok {DEVICE}/ports/1/gid_attrs/ndevs/0 {TYPE}")
        self.assertEqual(self.probe("glob", CLASS + "/none*"), "ENOENT")


class Paths(Facade):
    def test_slashes_and_dots(self):
        for path in ("//sys//class///infiniband/rxe_test0", "/sys/./class/./infiniband/./rxe_test0",
                     DEVICE + "/", DEVICE + "/.", "/sys/class/../class/infiniband/rxe_test0",
                     CLASS + "/../infiniband/rxe_test0", DEVICE + "/..", DEVICE + "/ports/..",
                     "/../../sys/class/infiniband", "/dev/../sys/class/infiniband", DEVICE + "/first_port/..",
                     "/usr/../sys/class/infiniband_verbs"):
            with self.subTest(path):
                self.assertEqual(self.probe("stat", path), "ok directory")
                self.assertEqual(self.probe("opendir", path)[:2], "ok")

    def test_dots_lead_out_again(self):
        for path in (CLASS + "/..", CLASS + "/../net", DEVICE + "/../../../class", "/dev/infiniband/../shm"):
            with self.subTest(path):
                self.assertEqual(self.probe("stat", path), "ok directory")
        self.assertEqual(self.probe("realpath", CLASS + "/../net/"), "ok /sys/class/net")
        self.assertEqual(self.probe("opendir", CLASS + "/../net"), self.probe("opendir", "/sys/class/net"))
        self.assertEqual(self.probe("scandir", CLASS + "/../net"), self.probe("scandir", "/sys/class/net"))
        self.assertEqual(self.probe("stat", NODE + "/../null"), "ENOTDIR")

    def test_files_are_no_directories(self):
        for path in (TYPE + "/", TYPE + "/.", TYPE + "/..", TYPE + "/x"):
            with self.subTest(path):
                self.assertEqual(self.probe("stat", path), "ENOTDIR")

    def test_missing_directories_are_not_passed_through(self):
        self.assertEqual(self.probe("stat", CLASS + "/missing/../rxe_test0"), "ENOENT")

    def test_links_on_the_way_are_left_to_the_kernel(self):
        link = self.home + "/link"
        os.symlink("/usr/bin", link)  # link/.. is /usr, not the folder that contains the link
        self.assertEqual(self.probe("stat", link + "/../.." + DEVICE), "ENOENT" if not HARDWARE else "ok directory")

    def test_other_names_stay_what_they_are(self):
        for path in ("/sys/class/infiniband9", "/dev/infiniband_", "/sys/class/net/infiniband", "/infiniband"):
            with self.subTest(path):
                self.assertEqual(self.probe("stat", path), "ENOENT")

    def test_relative(self):
        self.assertEqual(self.probe("in", "/sys/class", "infiniband/rxe_test0"), "ok directory")
        self.assertEqual(self.probe("in", "/", "dev/infiniband/rxe_test0"), "ok character")
        self.assertEqual(self.probe("in", "/dev", "../sys/class/infiniband_mad"), "ok directory")
        self.assertEqual(self.probe("in", DEVICE, "ports/1"), "ok directory")
        self.assertEqual(self.probe("in", DEVICE, "../../infiniband/rxe_test0/ports"), "ok directory")
        self.assertEqual(self.probe("at", "/sys/class", "infiniband/rxe_test0"), "ok directory")
        self.assertEqual(self.probe("at", CLASS, "rxe_test0/ports"), "ok directory")
        self.assertEqual(self.probe("open_at", CLASS, "rxe_test0/node_guid"), "ok 0200:00ff:fe00:0001")
        self.assertEqual(self.probe("in", "/tmp", "infiniband/rxe_test0"), "ENOENT")
        self.assertEqual(self.probe("at", "/missing", "infiniband/rxe_test0"), "EBADF")

    def test_too_long(self):
        self.assertEqual(self.probe("stat", DEVICE + "/" + "x" * 300), "ENAMETOOLONG")
        self.assertEqual(self.probe("stat", CLASS + "/x" * 2500), "ENAMETOOLONG")
        self.assertEqual(self.probe("stat", CLASS + "/." * 2500), "ENAMETOOLONG")

    def test_new_files_are_not_made_here(self):
        before = sorted(os.walk(self.home))
        self.assertNotEqual(self.probe("create", CLASS + "/new"), "ok 641")
        self.assertEqual(sorted(os.walk(self.home)), before)
        new = self.home + "/infiniband-elsewhere"
        self.assertEqual(self.probe("create", new), "ok 641")


class Transparency(Facade):
    @unittest.skipIf(HARDWARE, "this machine has RDMA devices of its own")
    def test_shows_nothing_without_a_directory(self):
        for home in ("", "/missing", "relative", "/etc/passwd", "/" + "x" * 5000):
            with self.subTest(home[:20]):
                self.assertEqual(self.probe("stat", CLASS, home=home), "ENOENT")
                self.assertEqual(self.probe("opendir", CLASS, home=home), "ENOENT")
                self.assertEqual(self.probe("realpath", NODE, home=home), "ENOENT")

    def test_everything_else_is_unchanged(self):
        command = ("ls", "-l", "/sys/class/net", "/usr/include")
        self.assertEqual(self.output_of(*command), self.output_of(*command, preload=None))

    def test_null_is_refused_not_read(self):
        self.assertEqual(self.probe("null", ""), "ok")

    def test_errno_stays(self):
        self.assertEqual(self.probe("keeps_errno", TYPE), "ok")

    def test_the_directory_may_come_later(self):
        home = self.home + "/later"
        script = f"test -e {DEVICE}; echo $?; cp -r {self.home} {self.home}-copy && mv {self.home}-copy {home}; " \
                 f"test -e {DEVICE}; echo $?"
        self.assertEqual(self.output_of("sh", "-c", script, home=home).split(), ["1", "0"])

    def test_the_directory_may_have_the_word_in_its_name(self):
        home = self.home + "/infiniband/home"
        make_tree(home)
        self.assertEqual(self.probe("realpath", DEVICE + "/first_port", home=home), f"ok {DEVICE}/ports/1")
        self.assertEqual(self.probe("stat", home + DEVICE, home=home), "ok directory")

    def test_environment_may_be_cleared(self):
        self.assertEqual(self.probe("without_environment", DEVICE), "ok directory")

    def test_the_root_directory_as_home_changes_nothing(self):
        self.assertEqual(self.probe("stat", CLASS, home="/"), self.probe("stat", CLASS, preload=None))

    def test_finds_the_agents_directory_by_itself(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        if os.path.exists("/run/verbena"):
            self.skipTest("root's agent goes first")
        uid = 3999999998  # a UID that no user has
        namespace = os.stat("/proc/self/ns/net").st_ino
        parent = f"/tmp/verbena-{uid}"
        home = f"{parent}/{namespace}"
        os.mkdir(parent, 0o755)
        self.addCleanup(shutil.rmtree, parent)
        make_tree(home)
        as_user = {"home": False, "user": uid}
        self.assertEqual(self.probe("stat", DEVICE), "ok directory")
        self.assertEqual(self.probe("stat", DEVICE, **as_user), "ok directory")  # root's files are trusted
        for path in (home, parent):
            os.chmod(path, 0o777)
            self.assertEqual(self.probe("stat", DEVICE, **as_user), "ENOENT")
            os.chmod(path, 0o755)
            os.chown(path, uid + 1, -1)
            self.assertEqual(self.probe("stat", DEVICE, **as_user), "ENOENT")
            os.chown(path, uid, -1)
            self.assertEqual(self.probe("stat", DEVICE, **as_user), "ok directory")


class Merging(Facade):
    """A machine with RDMA hardware, simulated in a mount namespace."""

    SETUP = """
set -e
mount -t tmpfs none /sys/class
mkdir -p /sys/class/infiniband/mlx_test5/ports /sys/class/infiniband/rxe_test0/hidden
mkdir /sys/class/infiniband_mad
echo hardware > /sys/class/infiniband/mlx_test5/node_guid
exec env LD_PRELOAD="$1" "$@"
"""

    def setUp(self):
        super().setUp()
        works = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/sys/class"], capture_output=True)
        if works.returncode != 0:
            self.skipTest("no mount namespaces here")

    def with_hardware(self, *command):
        script = self.SETUP.replace('"$1" "$@"', '"$0" "$@"')
        return self.output_of("unshare", "-rm", "sh", "-c", script, LIBRARY, *command, preload=None)

    def test_lists_both(self):
        for name in ("opendir", "fdopendir", "rewinddir", "readdir_r", "scandir", "scandir64", "many"):
            with self.subTest(name):
                self.assertEqual(self.with_hardware(PROBE, name, CLASS), "ok mlx_test5 rxe_test0")
        self.assertEqual(self.with_hardware(PROBE, "scandirat", "/sys/class", "infiniband"), "ok mlx_test5 rxe_test0")
        self.assertEqual(self.with_hardware("ls", CLASS).split(), ["mlx_test5", "rxe_test0"])
        self.assertEqual(sorted(self.with_hardware("find", CLASS, "-name", "node_guid").split()),
                         [CLASS + "/mlx_test5/node_guid", DEVICE + "/node_guid"])
        self.assertEqual(self.with_hardware("python3", "-c", f"import os; print(sorted(os.listdir('{CLASS}')))"),
                         "['mlx_test5', 'rxe_test0']")

    def test_reaches_both(self):
        self.assertEqual(self.with_hardware("cat", CLASS + "/mlx_test5/node_guid"), "hardware")
        self.assertEqual(self.with_hardware("cat", TYPE), "RoCE v2")
        self.assertEqual(self.with_hardware(PROBE, "realpath", CLASS + "/mlx_test5"), f"ok {CLASS}/mlx_test5")
        self.assertEqual(self.with_hardware(PROBE, "glob", CLASS + "/*/node_guid"),
                         f"ok {CLASS}/mlx_test5/node_guid {DEVICE}/node_guid")

    def test_reaches_both_by_relative_paths(self):
        script = f"cd {CLASS}; cat mlx_test5/node_guid rxe_test0/node_guid; echo *; ls .; cat rxe_test0/../mlx_test5/*guid"
        self.assertEqual(self.with_hardware("sh", "-c", script).split(),
                         ["hardware", "0200:00ff:fe00:0001", "mlx_test5", "rxe_test0", "mlx_test5", "rxe_test0",
                          "hardware"])

    def test_ours_win(self):
        self.assertEqual(self.with_hardware("ls", DEVICE).split(), ["device", "first_port", "node_guid", "ports"])

    def test_what_only_the_hardware_has(self):
        shutil.rmtree(self.home + CLASS)
        self.assertEqual(self.with_hardware("ls", CLASS).split(), ["mlx_test5", "rxe_test0"])
        self.assertEqual(self.with_hardware("ls", DEVICE).split(), ["hidden"])


class Library(Facade):
    def test_exports_what_it_stands_before_and_nothing_else(self):
        with open(VERSION_SCRIPT) as file:
            wanted = re.findall(r"^ +(\w+);$", file.read(), re.MULTILINE)
        table = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
        self.assertEqual(sorted(line.split()[-1] for line in table.stdout.splitlines()), sorted(wanted))

    def test_needs_the_c_library_only(self):
        table = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True)
        self.assertEqual(re.findall(r"NEEDED.*\[(.*)\]", table.stdout), ["libc.so.6"])


if __name__ == "__main__":
    program = unittest.main(argv=["facade_test.py"] + sys.argv[4:], exit=False)
    result = program.result
    all_skipped = result.wasSuccessful() and result.skipped and len(result.skipped) == result.testsRun
    sys.exit(77 if all_skipped else not result.wasSuccessful())
