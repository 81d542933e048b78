"""A TCP proxy between the servers and PostgreSQL, a process of its own, which can cut the network of one server.

    proxy.py '[[0, 15001, 5433], ...]'      for each port: the server that uses it, the port to listen on, the port of PostgreSQL

A line on the standard input is a command: `cut SERVER to` (nothing goes from the server to PostgreSQL), `cut SERVER from` (nothing
comes back), `cut SERVER both`, `open SERVER`. The proxy answers each with a line. Bytes that a cut holds back are forwarded when
it ends, as TCP would deliver them: connections do not break because of a cut.
"""

import asyncio
import json
import sys

CHUNK = 1 << 16


class Gates:
    """The two directions of one server's network."""

    def __init__(self):
        self.to, self.back = asyncio.Event(), asyncio.Event()
        self.open()

    def open(self) -> None:
        self.to.set()
        self.back.set()

    def cut(self, which: str) -> None:
        if which in ("to", "both"):
            self.to.clear()
        if which in ("from", "both"):
            self.back.clear()


async def pump(source, target, gate) -> None:
    try:
        while data := await source.read(CHUNK):
            await gate.wait()
            target.write(data)
            await target.drain()
    except OSError:
        pass
    # A cut hides the end of a connection, too.
    await gate.wait()
    target.close()


async def serve(gates: Gates, port: int, reader, writer) -> None:
    await gates.to.wait()
    await gates.back.wait()
    try:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, back_writer, gates.to), pump(back_reader, writer, gates.back))


async def main() -> None:
    table, gates = json.loads(sys.argv[1]), {}
    for server, listen, port in table:
        own = gates.setdefault(server, Gates())
        handler = lambda reader, writer, own=own, port=port: serve(own, port, reader, writer)  # noqa: E731
        await asyncio.start_server(handler, "127.0.0.1", listen)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    # The end of the input is the end of the test.
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        action, server, *which = line.split()
        if action == "open":
            gates[int(server)].open()
        else:
            gates[int(server)].cut(which[0])
        print("done", flush=True)


asyncio.run(main())
