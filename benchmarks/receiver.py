"""A receiver that does as little as can be: it reads a request and answers 200.

python -m benchmarks.receiver PORT
"""

import sys

from aiohttp import web


async def take(request: web.Request) -> web.Response:
    """Read the body and answer."""
    await request.read()
    return web.Response()


if __name__ == "__main__":
    app = web.Application()
    app.router.add_post("/", take)
    web.run_app(
        app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None
    )
