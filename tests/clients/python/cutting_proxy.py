"""A proxy that forwards whole messages, and on demand closes a connection instead of forwarding a request or its reply.

Which messages it cuts is said in Python (`cut`), or over the wire by a command that the proxy answers itself, so that suites of
every language can use one: `{cut: "reply commitTransaction 2"}` cuts the next two commits after the server has answered them,
`{cut: "request abortTransaction 1"}` the next abort before the server sees it, `{cut: "nothing"}` ends it. The reply's `cuts` is
the number of connections cut so far. What is asked for holds for clients of the same application name as the one that asks, so
that tests that run side by side do not cut each other's connections.

A connection's messages stay in order: a request goes on only when the reply of the one before has come back, as drivers send them.
"""

import re
import socket
import struct
import threading
import time
from collections import defaultdict

OP_MSG = 2013
LATE_SECS = 0.5
#: Drivers send these commands at any time, independently of the application.
HELLO = {"hello", "isMaster", "ismaster"}
DRIVER_COMMANDS = HELLO | {"endSessions", "killCursors"}


class Cuts:
    """What is to be cut for one application name, and what was."""

    def __init__(self):
        self.when, self.name, self.times, self.skip = "nothing", None, 0, 0
        self.cuts = self.late = 0
        self.names = []


class CuttingProxy:
    """Listens on a free port of 127.0.0.1 and forwards to one server, until it is closed."""

    def __init__(self, host, port):
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._open = set()
        self._closed = False
        self._asked = defaultdict(Cuts)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, when, name=None, times=1, skip=0, app=b""):
        """Cuts at the next `times` messages of this name (None: any), after `skip` of them.

        `when`: "request" (the server does not see it), "reply" (the client does not see it), "late" (the client does not see the
        reply, and the server sees the request half a second later), "nothing".
        """
        with self._lock:
            asked = self._asked[app]
            asked.when, asked.name, asked.times, asked.skip = when, name, times, skip

    @property
    def cuts(self):
        """How often a connection of a client without an application name was cut."""
        return self._asked[b""].cuts

    @property
    def late(self):
        """How many late requests of such clients the server has answered."""
        return self._asked[b""].late

    @property
    def names(self):
        """The names of the commands that such clients sent."""
        return self._asked[b""].names

    def close(self):
        with self._lock:
            self._closed = True
            ends, self._open = self._open, set()
        self._listener.close()
        for end in ends:
            _close(end)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = None
        try:
            server = socket.create_connection(self._target)
            with self._lock:
                if self._closed:
                    return
                self._open |= {client, server}
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            replies = threading.Thread(target=self._replies, args=(server, client), daemon=True)
            replies.cutting = threading.Event()
            replies.start()
            app = b""
            while message := _message(client):
                name = _command(message)
                if name is None or name in HELLO:
                    app = _application(message) or app
                if name == "cut":
                    client.sendall(self._ordered(message, app))
                    continue
                when = self._next_cut(name, app)
                if when == "request":
                    return
                if when == "late":
                    replies.cutting.set()
                    _close(client)
                    time.sleep(LATE_SECS)
                    server.sendall(message)
                    replies.join(LATE_SECS * 10)
                    with self._lock:
                        self._asked[app].late += 1
                    return
                if when == "reply":
                    replies.cutting.set()
                server.sendall(message)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open -= {client, server}
            for end in (client, server):
                _close(end)

    def _replies(self, server, client):
        """Forwards replies until one is to be lost."""
        try:
            while message := _message(server):
                if threading.current_thread().cutting.is_set():
                    break
                client.sendall(message)
        except OSError:
            pass
        for end in (client, server):
            _shut(end)

    def _next_cut(self, name, app):
        """What to do about a request of this name."""
        if name is None or name in DRIVER_COMMANDS:
            return None
        with self._lock:
            asked = self._asked[app]
            asked.names.append(name)
            if asked.when == "nothing" or asked.times == 0 or asked.name not in (None, name):
                return None
            if asked.skip > 0:
                asked.skip -= 1
                return None
            asked.times -= 1
            asked.cuts += 1
            return asked.when

    def _ordered(self, message, app):
        """Does what the command `cut` says, and gives its reply."""
        words = _text(message).split()
        self.cut(words[0], *words[1:2], *map(int, words[2:3]), app=app)
        cuts = self._asked[app].cuts
        document = b"\x10cuts\x00" + struct.pack("<i", cuts) + b"\x01ok\x00" + struct.pack("<d", 1.0) + b"\x00"
        body = struct.pack("<iBi", 0, 0, len(document) + 4) + document
        (request,) = struct.unpack_from("<i", message, 4)
        return struct.pack("<iiii", 16 + len(body), 0, request, OP_MSG) + body


def _message(source):
    """The next whole message; empty at the end."""
    head = _exactly(source, 4)
    return head and head + _exactly(source, struct.unpack("<i", head)[0] - 4)


def _exactly(source, count):
    data = bytearray()
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            return b""
        data += more
    return bytes(data)


def _command(message):
    """The command's name: the first key of an OP_MSG's document, which drivers send as its first section."""
    if struct.unpack_from("<i", message, 12)[0] != OP_MSG or message[20] != 0:
        return None
    return message[26:message.index(b"\x00", 26)].decode()


def _application(message):
    """The name a client gives itself in its first message."""
    found = re.search(rb"\x03application\x00....\x02name\x00....([^\x00]*)\x00", message, re.DOTALL)
    return found and found[1]


def _text(message):
    """The value of the first key, a string."""
    return re.match(rb"\x02cut\x00....([^\x00]*)\x00", message[25:], re.DOTALL)[1].decode()


def _shut(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _close(end):
    if end is not None:
        _shut(end)
        end.close()
