"""The forking parent alone, with children that only count."""

import subprocess
import sys
import textwrap

from django.conf import settings


def run(body, *, feed=""):
    script = textwrap.dedent(
        """
        import os, select, signal, sys
        from apps.runtime import supervise
        supervise.FIRST_DELAY_S = 0.01
        def say(text):
            os.write(1, (text + "\\n").encode())
        """
    ) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=settings.BASE_DIR,
        input=feed,
        capture_output=True,
        text=True,
        timeout=20,
    )


def test_children_that_end_unasked_are_started_again_until_told_to_stop():
    done = run(
        """
        count = 0
        def child(lifeline, will):
            say("born")
            if len(os.read(0, 1)):
                return 1
            os.kill(os.getppid(), signal.SIGTERM)
            signal.pause()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = supervise.supervise(child, count=1, heir=say)
        say(f"code {code}")
        """,
        feed="xxx",
    )
    # Three die of what they read, the fourth asks for the end and dies of the signal.
    assert done.stdout.splitlines() == ["born"] * 4 + ["code 1"]
    assert done.stderr.count("another starts") == 3


def test_a_hopeless_child_ends_all():
    done = run(
        """
        def child(lifeline, will):
            number = os.read(0, 1)
            if number == b"1":
                return supervise.HOPELESS
            # Not pause(): a signal that comes just before it would be slept over.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            signal.sigwait([signal.SIGTERM])
            os._exit(0)
        say(f"code {supervise.supervise(child, count=3, heir=say)}")
        """,
        feed="012",
    )
    assert done.stdout.splitlines() == ["code 2"]


def test_children_get_default_signals_and_an_end_of_the_lifeline():
    done = run(
        """
        def child(lifeline, will):
            default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            open_now = not select.select([lifeline], [], [], 0)[0]
            say(f"default {default} open {open_now}")
            os.kill(os.getppid(), signal.SIGKILL)
            select.select([lifeline], [], [])
            say("orphaned")
            return 0
        supervise.supervise(child, count=1, heir=say)
        """
    )
    assert done.returncode == -9
    assert done.stdout.splitlines() == ["default True open True", "orphaned"]


def test_the_will_of_who_died_is_executed_and_nobody_else_s():
    done = run(
        """
        def child(lifeline, will):
            number = os.read(0, 1)
            if number == b"4":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.kill(os.getppid(), signal.SIGTERM)
                return 0
            os.write(will, b"of " + number)
            os.write(will, b" and more")
            if number == b"1":
                os.kill(os.getpid(), signal.SIGKILL)
            return {b"0": 0, b"2": 0, b"3": 1}[number]
        heir = lambda will: say(will.decode())
        say(f"code {supervise.supervise(child, count=1, heir=heir)}")
        """,
        feed="01234",
    )
    lines = done.stdout.splitlines()
    assert sorted(lines[:-1]) == ["of 1 and more", "of 3 and more"], done.stderr
    assert lines[-1] == "code 0"


def test_an_heir_that_fails_changes_nothing():
    done = run(
        """
        def child(lifeline, will):
            if os.read(0, 1):
                os.write(will, b"x")
                return 1
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.kill(os.getppid(), signal.SIGTERM)
            return 0
        def heir(will):
            raise ValueError("odd")
        say(f"code {supervise.supervise(child, count=1, heir=heir)}")
        """,
        feed="x",
    )
    assert done.stdout.splitlines() == ["code 0"]
    assert "ValueError: odd" in done.stderr
