"""Threads, processes, shared memory, a database, sockets: what Python programs do, in one."""

import asyncio
import concurrent.futures
import json
import multiprocessing
import multiprocessing.shared_memory
import pathlib
import sqlite3
import subprocess
import tempfile
import threading


def square(number):
    return number * number


def threads():
    squares = []
    workers = [threading.Thread(target=lambda n=n: squares.append(square(n))) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(squares)


def processes():
    with multiprocessing.Pool(2) as pool:
        forked = pool.map(square, range(4))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    spawned = context.Process(target=queue.put, args=("spawned",))
    spawned.start()
    said = queue.get()
    spawned.join()
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        return [forked, said, list(pool.map(square, range(4)))]


def shared_memory():
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 42
    same = multiprocessing.shared_memory.SharedMemory(memory.name)
    value = same.buf[0]
    same.close()
    memory.close()
    memory.unlink()
    return value


def database():
    with sqlite3.connect("numbers.db") as connection:
        connection.execute("pragma journal_mode=wal")
        connection.execute("create table numbers (n integer)")
        connection.executemany("insert into numbers values (?)", [(n,) for n in range(100)])
    return connection.execute("select sum(n) from numbers").fetchone()[0]


async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


async def ask(reader, writer):
    writer.write(b"hello\n")
    await writer.drain()
    answer = await reader.readline()
    writer.close()
    return answer.decode().strip()


async def sockets():
    async with await asyncio.start_unix_server(echo, "echo.sock"):
        local = await ask(*await asyncio.open_unix_connection("echo.sock"))
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        internet = await ask(*await asyncio.open_connection("127.0.0.1", port))
    child = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    piped = (await child.communicate(b"through a pipe"))[0].decode()
    return [local, internet, piped, child.returncode]


def files():
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "x").write_text("temporary")
    (pathlib.Path.home() / "of-the-home").write_text("kept or not")
    return (pathlib.Path.home() / "of-the-home").read_text()


if __name__ == "__main__":
    print(json.dumps([threads(), processes(), shared_memory(), database(), asyncio.run(sockets()), files()]))
