"""A stand-in for Prometheus: it answers range queries about made-up GPUs over HTTP."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

A100 = "NVIDIA A100-SXM4-40GB"
_SELECTOR = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def of_gpu(pod, *, gpu="0", at=range(100), busy=80, memory=5000, power=200, **labels):
    """The series of dcgm-exporter of a pod on a GPU, at these samples, 30 s apart."""
    own = {
        "gpu": gpu,
        "UUID": f"GPU-{gpu}",
        "modelName": A100,
        "Hostname": "node-1",
        "container": "main",
        "namespace": "ml",
        "pod": pod,
        **labels,
    }
    values = {
        "DCGM_FI_DEV_GPU_UTIL": busy,
        "DCGM_FI_DEV_MEM_COPY_UTIL": busy / 2,
        "DCGM_FI_DEV_FB_USED": memory,
        "DCGM_FI_DEV_POWER_USAGE": power,
    }
    return [
        ({"__name__": name, **own}, {30 * sample: value for sample in at})
        for name, value in values.items()
    ]


@contextmanager
def serving(series, answer=None):
    """Serve `series`, or the `answer` of status, headers and body; yield address and requests."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append((self.path, dict(self.headers)))
            status, headers, body = answer or (200, {}, _matrix(series, self.path))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _matrix(series, path):
    parts = urlsplit(path)
    assert parts.path == "/api/v1/query_range"
    words = {name: value for name, (value,) in parse_qs(parts.query).items()}
    selectors = [_SELECTOR.fullmatch(part).groups("") for part in words["query"].split(" or ")]
    start, end = float(words["start"]), float(words["end"])
    result = [
        {
            "metric": labels,
            "values": [[at, str(number)] for at, number in points.items() if start <= at <= end],
        }
        for labels, points in series
        if any(
            labels["__name__"] == name
            and all(labels.get(label, "") == value for label, value in _LABEL.findall(wanted))
            for name, wanted in selectors
        )
    ]
    data = {"resultType": "matrix", "result": [each for each in result if each["values"]]}
    return json.dumps({"status": "success", "data": data}).encode()
