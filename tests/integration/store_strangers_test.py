"""Whatever strangers send to the port of a job's store, the job goes on, and libtorch's complaints stay out of its output."""
import socket
import struct
import time

import dtorch_testing
from dtorch_testing import DTORCH, DtorchTest, Running, free_port, wait_until

HELLO = b"\0" + struct.pack("<I", 0x3C85F7CE)  # how a client of the store begins
MESSAGES = [b"GET / HTTP/1.0\r\n\r\n", bytes(range(256)) * 8] + [
    HELLO + bytes([query]) + body
    for query in range(24)
    for body in (b"", b"\xff" * 64, struct.pack("<Q", 1 << 60), struct.pack("<Q", 3) + b"key" + struct.pack("<Q", 1 << 40))]


class Strangers(DtorchTest):
    def listens(self, port):
        with socket.socket() as peer:
            return peer.connect_ex(("127.0.0.1", port)) == 0

    def send_nonsense(self, port):
        answered = 0
        for message in MESSAGES:
            with socket.create_connection(("127.0.0.1", port), 5) as peer:
                peer.settimeout(0.05)
                try:
                    peer.sendall(message)
                    peer.recv(1)
                    answered += 1
                except OSError:
                    pass
        return answered

    def test_do_not_disturb_a_launch(self):
        port = free_port()
        with Running([DTORCH, "launch", "-n", "1", "--master-port", str(port), "--", "sleep", "8"]) as job:
            wait_until(lambda: self.listens(port), 5, "the launcher listens")
            deadline = time.monotonic() + 7
            answered = 0
            while not answered and time.monotonic() < deadline:
                answered = self.send_nonsense(port)
            self.assertTrue(answered, "the store never read what was sent")
            result = job.wait(30)
        self.assert_exit(result, 0)
        self.assertEqual(result.err, "")


if __name__ == "__main__":
    dtorch_testing.main()
