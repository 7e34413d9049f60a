"""Isolated tasks that do to their process what tasks do."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import chrono

log = logging.getLogger("tests.isolated")
isolated = {"isolation": "process"}


@chrono.task(name="pid", **isolated)
def pid(payload):
    return os.getpid()


@chrono.task(name="pid_async", **isolated)
async def pid_async(payload, ctx):
    await asyncio.sleep(0)
    return [os.getpid(), ctx.run_id, ctx.attempt, ctx.scheduled_for.isoformat()]


@chrono.task(name="echo", **isolated)
def echo(payload):
    return payload


@chrono.task(name="object", **isolated)
def give_object(payload):
    return {"o": object()}


@chrono.task(name="raise", **isolated)
def fail(payload):
    raise ValueError("no\x00such \ud800 thing")


@chrono.task(name="exit", **isolated)
def leave(payload):
    sys.exit(3)


@chrono.task(name="os_exit", **isolated)
def leave_at_once(payload):
    print("about to leave")
    os._exit(137)


@chrono.task(name="segfault", **isolated)
def crash(payload):
    ctypes.string_at(0)


@chrono.task(name="killed", **isolated)
def killed(payload):
    os.kill(os.getpid(), signal.SIGKILL)


@chrono.task(name="hold_gil", **isolated)
def hold_gil(payload):
    print("holding", flush=True)
    # Called without letting go of the GIL: no other thread of this process runs.
    ctypes.PyDLL(None).sleep(600)


@chrono.task(name="gigabyte", **isolated)
def print_a_gigabyte(payload):
    line = "x" * 1023 + "\n"
    for _ in range(1024):
        sys.stdout.write(line * 1024)
    return "printed"


@chrono.task(name="hog", **isolated, memory="256MiB")
def hog(payload):
    kept = [bytearray(16 * 1024 * 1024) for _ in range(payload)]
    return len(kept)


@chrono.task(name="leave_thread", **isolated)
def leave_thread(payload):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return os.getpid()


@chrono.task(name="resume", **isolated)
def resume(payload, ctx):
    done = ctx.last_checkpoint or 0
    ctx.progress(0.5, f"at {done}")
    ctx.checkpoint(done + 1)
    ctx.checkpoint(done + 2)
    if ctx.attempt == 1:
        os._exit(1)
    if ctx.attempt == 2:
        raise ValueError("again")
    return done


@chrono.task(name="too_much", **isolated)
def too_much(payload, ctx):
    ctx.checkpoint("x" * 70_000)


@chrono.task(name="work", **isolated)
def work(payload, ctx):
    print("working", flush=True)
    number = ctx.last_checkpoint or 0
    while True:
        number += 1
        time.sleep(0.005)
        ctx.checkpoint(number)


@chrono.task(name="wait_async", **isolated)
async def wait_async(payload):
    print("working", flush=True)
    await asyncio.Event().wait()


@chrono.task(name="parent", **isolated)
def parent(payload):
    child = subprocess.Popen(["sleep", "600"])
    print(f"grandchild {child.pid}", flush=True)
    ctypes.PyDLL(None).sleep(600)


@chrono.task(name="neighbour")
async def neighbour(payload):
    await asyncio.sleep(0.01)
    return os.getpid()


@chrono.task(name="speak", **isolated)
def speak(payload, ctx):
    ctx.log("a line of the log")
    print("a printed line")
    if payload:
        os._exit(4)


# What is done once: each effect is a line of the file that the payload names.


def _effect(path, text):
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def _charge(payload, attempt):
    _effect(payload["file"], f"charge {attempt} {os.getpid()}")
    if payload.get("die") == "in it" and attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if payload.get("wait"):
        # Until the test opens the other end.
        open(payload["wait"], "rb").close()
    return {"charged": (attempt,)}


def _end(payload, attempt):
    if payload.get("die") == "behind it" and attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if payload.get("die") == "by raising" and attempt == 1:
        raise ValueError("after the charge")


@chrono.task(name="pay", **isolated)
def pay(payload, ctx):
    per = payload.get("per", "run")
    told = [ctx.once("charge", _charge, payload, ctx.attempt, per=per)]
    _end(payload, ctx.attempt)
    return [*told, ctx.once("charge", _charge, payload, ctx.attempt, per=per)]


@chrono.task(name="pay_async", **isolated)
async def pay_async(payload, ctx):
    async def charge():
        await asyncio.sleep(0)
        return _charge(payload, ctx.attempt)

    told = [await ctx.once("charge", charge)]
    _end(payload, ctx.attempt)
    return [*told, await ctx.once("charge", charge)]


@chrono.task(name="misuse", **isolated)
def misuse(payload, ctx):
    def fail():
        raise KeyError("not done")

    said = []
    for call in (
        lambda: ctx.once("a", fail),
        lambda: ctx.once("a", int, ttl="59s"),
        lambda: ctx.once("a\n", int),
    ):
        try:
            call()
        except (KeyError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return [*said, ctx.once("a", set)]


@chrono.task(name="late", **isolated)
def late(payload, ctx):
    _effect(payload["file"], "begun")
    open(payload["wait"], "rb").close()
    try:
        ctx.once("charge", _effect, payload["file"], "charged")
    except chrono.RunCancelled:
        _effect(payload["file"], "called off")
        raise
