"""A web server on this machine that answers as a test tells it, well or badly."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Answers each request with the next of `answers`, the last one for ever; counts the requests."""

    def __init__(self):
        self.answers, self.requests = [], 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer = outer.answers[min(outer.requests, len(outer.answers) - 1)]
                outer.requests += 1
                answer(self)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/ml-100k.zip"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def body(content, length=None, cut=None, status=200):
    """An answer that announces `length` bytes (default: all) and sends `content[:cut]`."""

    def answer(handler):
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content) if length is None else length))
        handler.end_headers()
        handler.wfile.write(content[:cut])

    return answer


def without_length(content):
    """An answer that ends where the connection does."""

    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def drop_by_drop(content, pause):
    """An answer that never ends, one byte at a time."""

    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        try:
            for place in range(len(content)):
                handler.wfile.write(content[place : place + 1])
                time.sleep(pause)
        except OSError:
            pass  # the other side has left

    return answer


def silence(handler):
    """Hangs up without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)
