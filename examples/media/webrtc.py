"""A WebRTC sender and its receiver on aiortc: `send FILE ADDRESS PORT` and `receive PORT`. Video is sent as it is."""

import asyncio
import json
import sys

from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.contrib.media import MediaBlackhole, MediaPlayer


async def send(file: str, address: str, port: str) -> None:
    connection = RTCPeerConnection()
    ended = asyncio.Event()
    video = MediaPlayer(file, decode=False).video
    video.on("ended", ended.set)
    connection.addTrack(video)
    await connection.setLocalDescription(await connection.createOffer())
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(told(connection))
    await connection.setRemoteDescription(heard(await reader.readline()))
    await ended.wait()


async def receive(port: str) -> None:
    connection, sink = RTCPeerConnection(), MediaBlackhole()
    connection.on("track", sink.addTrack)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await connection.setRemoteDescription(heard(await reader.readline()))
        await sink.start()
        await connection.setLocalDescription(await connection.createAnswer())
        writer.write(told(connection))

    async with await asyncio.start_server(answer, port=int(port)) as server:
        await server.serve_forever()


def told(connection: RTCPeerConnection) -> bytes:
    here = connection.localDescription
    return json.dumps({"sdp": here.sdp, "type": here.type}).encode() + b"\n"


def heard(line: bytes) -> RTCSessionDescription:
    return RTCSessionDescription(**json.loads(line))


match sys.argv[1:]:
    case ["send", file, address, port]:
        asyncio.run(send(file, address, port))
    case ["receive", port]:
        asyncio.run(receive(port))
    case _:
        sys.exit("give: send FILE ADDRESS PORT, or: receive PORT")
