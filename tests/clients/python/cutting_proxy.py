"""A proxy that forwards everything, and on demand drops a connection instead of forwarding the reply to a write."""

import socket
import threading

CHUNK = 65536


class CuttingProxy:
    """Listens on a free port of 127.0.0.1; `cut(name)` loses the reply to the next command of this name."""

    def __init__(self, host, port):
        self._target = (host, port)
        self._cut = None
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, name):
        self._cut = b"\x02" + name.encode() + b"\x00"

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            cutting = threading.Event()
            for source, target, replies in ((client, server, False), (server, client, True)):
                args = (source, target, replies, cutting)
                threading.Thread(target=self._forward, args=args, daemon=True).start()

    def _forward(self, source, target, replies, cutting):
        try:
            while data := source.recv(CHUNK):
                if replies and cutting.is_set():
                    break
                wanted = self._cut
                if not replies and wanted and wanted in data:
                    self._cut = None
                    self.cuts += 1
                    cutting.set()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
