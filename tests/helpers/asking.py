"""Ask a live run over its socket or over TCP, from within the loop in which it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ApiReply:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON is what it is
        return json.loads(self.body)

    @property
    def what(self) -> str:
        return str(self.json["error"]["what"])


async def ask(
    address: Path | str, request: str, body: object = None, *, raw: bytes | None = None, **headers: str
) -> ApiReply:
    """Ask ``request``, such as "GET /v1/status"; the address is a socket's path or ``http://HOST:PORT``."""
    reader, writer = await connect(address)
    data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    given = {"host": "localhost", "connection": "close"}
    if body is not None:
        given["content-type"] = "application/json"
    if data:
        given["content-length"] = str(len(data))
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
    writer.write(f"{request} HTTP/1.1\r\n{head}\r\n".encode() + data)
    try:
        seen = await reader.read()
    finally:
        writer.close()
    first, _, rest = seen.partition(b"\r\n\r\n")
    lines = first.decode("latin-1").split("\r\n")
    heads = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return ApiReply(int(lines[0].split()[1]), heads, rest)


async def connect(address: Path | str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and say nothing yet."""
    text = str(address)
    if text.startswith("http://"):
        host, _, port = text.removeprefix("http://").rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port))
    return await asyncio.open_unix_connection(text.removeprefix("unix:"))
