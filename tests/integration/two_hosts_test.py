"""Jobs over two machines: two network namespaces joined by a cable, each with a host name and a /dev/shm of its own. Needs
the right to make namespaces (root)."""
import ctypes
import itertools
import os
import pathlib
import signal
import subprocess
import time

import dtorch_testing
from dtorch_testing import DTORCH, SLACK, DtorchTest, Running, overrides, wait_until
from train_support import SPEC

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


class Host:
    """A network namespace, held by a process that sleeps in it."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"], stdin=subprocess.DEVNULL)
        net = pathlib.Path(f"/proc/{self.holder.pid}/ns/net")
        wait_until(lambda: self.holder.poll() is None and os.readlink(net) != os.readlink("/proc/self/ns/net"), 5,
                   "a network namespace (needs root)")
        self.net = os.open(net, os.O_RDONLY | os.O_CLOEXEC)

    def enter(self):
        """Makes the calling process one of this host's."""
        check(libc.setns(self.net, CLONE_NEWNET), "setns")
        check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS), "unshare")
        name = self.name.encode()
        check(libc.sethostname(name, len(name)), "sethostname")
        libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)  # refused in a chroot, where it is not needed
        check(libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"size=64m"), "mount /dev/shm")

    def ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True, preexec_fn=lambda: check(libc.setns(self.net, CLONE_NEWNET), "setns"))

    def run(self, *arguments, env=None, cwd=None):
        return Running([DTORCH, *arguments], env=env, cwd=cwd, preexec=self.enter)

    def close(self):
        self.holder.kill()
        self.holder.wait()
        os.close(self.net)


class TwoHosts(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()
        self.spec = os.path.join(self.folder, "job.yaml")
        self.alpha = self.host("alpha", "10.77.0.1")
        self.beta = self.host("beta", "10.77.0.2")
        for number, host in enumerate((self.alpha, self.beta), 1):
            # An interface that leads nowhere, and comes first: only the way to the master tells which one is meant.
            host.ip("link", "add", "aaa", "type", "veth", "peer", "name", "zzz")
            host.ip("addr", "add", f"10.66.{number}.1/24", "dev", "aaa")
            host.ip("link", "set", "aaa", "up")
            host.ip("link", "set", "zzz", "up")
        self.alpha.ip("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(self.beta.holder.pid))
        for number, host in enumerate((self.alpha, self.beta), 1):
            host.ip("link", "set", "lo", "up")
            host.ip("addr", "add", f"{host.address}/24", "dev", "cable")
            host.ip("addr", "add", f"fd77::{number}/64", "dev", "cable", "nodad")
            host.ip("link", "set", "cable", "up")

    def host(self, *arguments):
        host = Host(*arguments)
        self.addCleanup(host.close)
        return host

    def write(self, init_method="tcp://10.77.0.1:29500", more="", epochs=1):
        text = SPEC.replace("epochs: 1", f"epochs: {epochs}").replace("world_size: 2", "world_size: 4")
        pathlib.Path(self.spec).write_text(text.replace("tcp://127.0.0.1:0", init_method) + more)

    def start(self, host, node, *settings):
        env = {"OMP_NUM_THREADS": "1", "DTORCH_LOG": "info"}
        return host.run("run", self.spec, "--json", "--nnodes", 2, "--node-rank", node, *overrides(settings), env=env,
                        cwd=self.folder)

    def both(self, *settings):
        with self.start(self.alpha, 0, *settings) as first, self.start(self.beta, 1, *settings) as second:
            results = [first.wait(120), second.wait(120)]
        for result in results:
            self.assert_exit(result, 0)
            self.assert_nothing_left(result.mark, 1)
        return results

    def test_train_over_ipv4_and_ipv6(self):
        cases = itertools.product(("tcp://10.77.0.1:29500", "tcp://[fd77::1]:29500"), ("gloo", "tcp"))
        for init_method, backend in cases:
            self.write(init_method)
            results = self.both(f"backend={backend}")
            accuracy = results[0].events("result")[0]["test_accuracy"]
            self.assertGreater(accuracy, 0.6, repr(results[0]))
            self.assertEqual(results[0].events("result")[0]["world_size"], 4)
            text = "".join(result.out + result.err for result in results)
            address = "fd77::{}" if "[" in init_method else "10.77.0.{}"
            self.assertIn(f"rank 3 uses the address {address.format(2)}, the way to the master {address.format(1)}", text)
            self.assertIn(f"rank 0 uses the address {address.format(1)}, the way to", text)

    def test_auto_takes_tcp_between_hosts_and_shm_is_refused(self):
        self.write()
        self.assertEqual(self.both("backend=auto")[0].events("result")[0]["backend"], "tcp")
        with self.start(self.alpha, 0, "backend=shm") as first, self.start(self.beta, 1, "backend=shm") as second:
            for result in (first.wait(60), second.wait(60)):
                self.assert_exit(result, 78)
                self.assertIn("is not on the host of rank 0 (alpha)", repr(result))

    def test_a_machine_that_lends_its_slots_trains_too(self):
        self.write()
        with self.alpha.run("run", self.spec, "--json", "--nnodes", 2, "--node-rank", 0, cwd=self.folder) as first, \
                self.beta.run("join", "tcp://10.77.0.1:29500", "--slots", 2, cwd="/") as second:
            self.assert_exit(first.wait(120), 0)
            self.assert_exit(second.wait(60), 0)

    def test_a_killed_rank_ends_both_and_is_named_with_its_host(self):
        for backend in ("gloo", "tcp"):
            with self.subTest(backend):
                self.kill_a_rank(backend)

    def kill_a_rank(self, backend):
        self.write(epochs=100000)
        settings = [f"backend={backend}"]
        with self.start(self.alpha, 0, *settings) as first, self.start(self.beta, 1, *settings) as second:
            wait_until(lambda: '"event":"step"' in first.text(first.out), 30, "training has begun")
            victim = second.ranks()[3]
            os.kill(victim, signal.SIGKILL)
            killed = time.monotonic()
            results = [first.wait(20), second.wait(20)]
            self.assertLess(time.monotonic() - killed, 1.5 * SLACK)
        for result in results:
            self.assert_exit(result, 69)
            error = result.events("error")[0]
            self.assertEqual((error["host"], error["signal"]), ("beta", 9), repr(result))
            self.assert_nothing_left(result.mark, 1)

    def test_a_cable_that_is_pulled_is_noticed_at_the_deadline(self):
        self.write(epochs=100000, more="timeouts: {collective: 2s, shutdown: 1s}\n")
        with self.start(self.alpha, 0) as first, self.start(self.beta, 1) as second:
            wait_until(lambda: '"event":"step"' in first.text(first.out), 30, "training has begun")
            self.beta.ip("link", "set", "cable", "down")
            pulled = time.monotonic()
            results = [first.wait(40), second.wait(40)]
            took = time.monotonic() - pulled
        for result in results:
            self.assertIn(result.code, (124, 69), repr(result))
            self.assert_nothing_left(result.mark, 1)
        self.assertLess(took, 2 + 8 * SLACK, results)

    def test_loopback_is_no_meeting_point_for_two(self):
        self.write("tcp://127.0.0.1:29500", more="timeouts: {rendezvous: 3s}\n")
        with self.start(self.beta, 1) as second:
            result = second.wait(30)
        self.assert_exit(result, 124)
        self.assertIn("'127.0.0.1' is always this machine itself", result.err + result.out)


if __name__ == "__main__":
    dtorch_testing.main()
