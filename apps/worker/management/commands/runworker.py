"""Run a worker: claim, execute, settle, until SIGTERM."""

import logging
import os
import sys
from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.runtime.supervise import HOPELESS, supervise
from apps.worker.config import Config, config_from
from apps.worker.heir import inherit
from apps.worker.process import serve
from chrono import tasks
from chrono.rules.errors import ChronoError

GIVE_WAY = 5
"""By how much a worker is nicer than a scheduler beside it: what is due is made ready
first. Of 50,000 just made timers of an instant, on two cores, all were after 3.4 s in
place of 4.1, and executed after 5.4 in place of 5.1 (medians of four)."""


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queues",
            default="default",
            help="names separated by commas, the first served first (default: default)",
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            default=50,
            help="runs that one process executes at once (default: 50)",
        )
        parser.add_argument(
            "--processes",
            type=int,
            default=1,
            help="processes, about one a core (default: 1)",
        )

        # For the process that a worker starts for what was set aside: standard input is
        # its lifeline.
        parser.add_argument("--alone", action="store_true", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        queues = tuple(
            dict.fromkeys(filter(None, map(str.strip, options["queues"].split(","))))
        )
        if not queues:
            raise CommandError("--queues names no queue")
        if not 1 <= options["concurrency"] <= 100_000:
            raise CommandError("--concurrency is a number from 1 to 100000")
        if not 1 <= options["processes"] <= 256:
            raise CommandError("--processes is a number from 1 to 256")
        try:
            config = config_from(
                settings,
                queues=queues,
                concurrency=options["concurrency"],
                alone=options["alone"],
            )
        except ChronoError as error:
            raise CommandError(error.message) from None
        code = self._run(config, processes=options["processes"])
        logging.shutdown()
        sys.stdout.flush()
        # A handler's thread that never returns must not keep the process.
        os._exit(code)

    def _run(self, config: Config, *, processes: int) -> int:
        registry = tasks.discover()

        def child(lifeline: int | None, will: int | None) -> int:
            if not config.alone:  # That one's parent has.
                os.nice(GIVE_WAY)
            try:
                return serve(config, registry=registry, lifeline=lifeline, will=will)
            except ChronoError as error:
                self.stderr.write(f"error: {' '.join(error.message.split())}")
                return HOPELESS

        if processes == 1:
            return child(sys.stdin.fileno() if config.alone else None, None)
        return supervise(
            child, count=processes, heir=lambda will: inherit(config.url, will)
        )
